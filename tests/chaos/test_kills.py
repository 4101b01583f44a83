"""The bounded form of `make chaos`: as many kills as a minute has room for, on any machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

KILLS = Path(__file__).with_name("kills.py")
SECONDS, KILLS_AT_MOST, KILLS_AT_LEAST = 50, 40, 5
"""The least is what a machine makes that is ten times slower than a laptop."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("seed", "durability"), [(1, "process")])
def test_nothing_is_lost_or_doubled_however_often_turnstile_is_killed(
    seed: int, durability: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    options = ["--seed", str(seed), "--durability", durability, "--kills", str(KILLS_AT_MOST), "--rollouts", "20"]
    options += ["--seconds", str(SECONDS), "--at-least", str(KILLS_AT_LEAST), "--folder", str(tmp_path)]
    done = subprocess.run([sys.executable, str(KILLS), *options], capture_output=True, text=True, timeout=380)
    record_property("figures", done.stdout.strip().rpartition("\n")[2])
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4000:]}"
    assert done.stdout.rstrip().endswith("; 0 breaches")
