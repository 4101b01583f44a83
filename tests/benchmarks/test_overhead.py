"""The benchmark runs from a clean checkout, and what it measures are answered calls that really spliced."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "overhead.py"


def test_a_quick_run_measures_the_engine_a_relay_and_turnstile_under_the_same_load(tmp_path):
    command = [sys.executable, str(BENCHMARK), "--quick", "--json", str(tmp_path / "figures.json")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (finished.returncode, finished.stderr) == (0, "")
    cells = json.loads((tmp_path / "figures.json").read_text())["cells"]
    answered = [{target: figures["outcomes"] for target, figures in cell["targets"].items()} for cell in cells]
    assert answered == [
        {"engine": {"answered": calls}, "relay": {"answered": calls}, "turnstile": {"spliced": calls}}
        for calls in (2, 8)
    ]
    assert all(figures["cpu_ms"] > 0 for cell in cells for name, figures in cell["targets"].items() if name != "engine")
