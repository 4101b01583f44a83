"""Real harnesses through a whole Turnstile: those that start in seconds, where they are installed.

`make harnesses` runs all of them, with faults at the engine. Here each is one process, which does the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).parent / "run.py"
LIMIT_S = 330
"""Beyond what a run allows itself, so that its own words on what went wrong are seen."""
QUICK = (
    "claude-code 2.1.332",
    "codex 0.171.0",
    "openai-agents 0.24.0 chat",
    "openai-agents 0.24.0 responses",
    "pydantic-ai 2.62.0 anthropic",
    "pydantic-ai 2.62.0 gemini",
)


def _run(name: str, trouble: str) -> dict[str, Any]:
    words = [sys.executable, str(RUN), "--json", "--only", name, "--trouble", trouble]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, check=False)
    (report,) = (json.loads(line) for line in done.stdout.splitlines())
    if "left_out" in report:
        pytest.skip(report["left_out"])
    return report


@pytest.mark.families
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", QUICK)
def test_a_harness_repairs_the_task_on_one_root_without_a_fork_and_every_token_is_accounted_for(name: str) -> None:
    report = _run(name, "none")
    assert report["problems"] == []
    assert (report["requests"], report["roots"], report["forks"], report["failed"]) == (6, 1, [], 0)


@pytest.mark.families
@pytest.mark.timeout(LIMIT_S)
@pytest.mark.parametrize("name", ["codex 0.171.0", "openai-agents 0.24.0 chat", "pydantic-ai 2.62.0 anthropic"])
def test_an_answer_that_an_engine_cut_is_never_a_sample_whatever_the_harness_makes_of_it(name: str) -> None:
    report = _run(name, "clean end")
    assert report["problems"] == []
    assert report["failed"] >= 1
