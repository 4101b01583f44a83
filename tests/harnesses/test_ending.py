"""What a run of a harness starts does not outlive it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ABOVE = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
import ending
ending.end_on_signals()
words = ["sh", "-c", "(setsid sleep 300 & echo $!) ; echo $$ ; exec sleep 300"]
with subprocess.Popen(ending.dying_with_parent(words), start_new_session=True) as child:
    try:
        time.sleep(300)
    finally:
        ending.kill_descendants()
"""
LIMIT_S = 20.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="prctl and /proc are Linux's")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _started() -> tuple[subprocess.Popen[str], int, int]:
    """A program, the process of its harness, and one that this one left behind in a session of its own."""
    words = [sys.executable, "-c", ABOVE, str(HERE)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    left_behind, harness = (int(process.stdout.readline()) for _ in range(2))
    return process, harness, left_behind


def _wait_until_gone(pid: int) -> None:
    until = time.monotonic() + LIMIT_S
    while _runs(pid):
        assert time.monotonic() < until, f"process {pid} is still there"
        time.sleep(0.02)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_told_to_end_kills_what_it_started_in_whatever_session(by: signal.Signals) -> None:
    process, harness, left_behind = _started()
    with process:
        assert _runs(harness)
        assert _runs(left_behind)
        process.send_signal(by)
        assert process.wait(LIMIT_S) == 128 + by
    assert not _runs(harness)
    assert not _runs(left_behind)


def test_a_harness_dies_with_its_run_even_if_that_is_killed() -> None:
    process, harness, left_behind = _started()
    with process:
        process.kill()
        process.wait(LIMIT_S)
    _wait_until_gone(harness)
    subprocess.run(["kill", "-9", str(left_behind)], check=True)
