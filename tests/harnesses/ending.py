"""Nothing that a run starts outlives it, however it ends.

    python tests/harnesses/ending.py COMMAND [ARGUMENT ...]     becomes the command, and dies with its parent

Linux only (prctl(2), proc(5)); elsewhere all of it does nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

SET_PDEATHSIG = 1
SET_CHILD_SUBREAPER = 36
PROC = Path("/proc")
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def dying_with_parent(command: list[str]) -> list[str]:
    """The command, so that it is killed when its parent is gone, even if that was killed itself."""
    return [sys.executable, "-I", __file__, *command]


def die_with_parent(by: signal.Signals) -> None:
    """Have `by` sent to this process once its parent is gone."""
    parent = os.getppid()
    _prctl(SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os.kill(os.getpid(), by)


def end_on_signals() -> None:
    """Turn each signal that asks for an end into SystemExit, and be the parent of whatever loses its own."""
    _prctl(SET_CHILD_SUBREAPER, 1)
    for each in ENDINGS:
        signal.signal(each, _leave)


def kill_descendants(within_s: float = 5.0) -> None:
    """Kill every process below this one, and those that they start meanwhile."""
    until = time.monotonic() + within_s
    while (found := _descendants()) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _descendants() -> list[int]:
    """Those that run; one that has ended and is not waited for is none."""
    children: dict[int, list[int]] = {}
    for place in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # pid (name) state ppid: the name may hold blanks and brackets.
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(place.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    die_with_parent(signal.SIGKILL)
    os.execvp(sys.argv[1], sys.argv[1:])
