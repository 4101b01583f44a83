"""The benchmark of a spliced turn runs from a clean checkout and measures turns that really splice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from turnstile.templates.files import ModelFiles

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "bridge.py"


@pytest.mark.families
def test_a_quick_run_measures_the_bridge_beside_a_whole_render_at_each_length(
    family_files: Callable[[str], ModelFiles], tmp_path: Path
) -> None:
    family_files("smollm2")
    command = [sys.executable, str(BENCHMARK), "--quick", "--json", str(tmp_path / "figures.json")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (finished.returncode, finished.stderr) == (0, "")
    measured = json.loads((tmp_path / "figures.json").read_text())["bridges"]
    assert [(each["family"], each["held"]) for each in measured] == [("smollm2", 1_000), ("smollm2", 4_000)]
    assert all(0 < each["bridge_ms"] < each["whole_ms"] for each in measured)
