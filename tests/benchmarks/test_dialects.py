"""The benchmark of the dialects runs from a clean checkout, knows them all, and measures turns that really splice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from turnstile.protocols import DIALECTS

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "dialects.py"


def test_a_quick_run_measures_the_same_conversation_in_every_dialect_whole_and_streamed(tmp_path):
    command = [sys.executable, str(BENCHMARK), "--quick", "--json", str(tmp_path / "figures.json")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (finished.returncode, finished.stderr) == (0, "")
    measured = json.loads((tmp_path / "figures.json").read_text())["dialects"]
    assert [(each["dialect"], each["stream"], each["outcomes"]) for each in measured] == [
        (dialect.name, stream, {"root": 1, "spliced": 2}) for stream in (False, True) for dialect in DIALECTS
    ]
    assert all(0 < each["read_ms"] < min(map(min, each["cpu_ms"])) for each in measured)
