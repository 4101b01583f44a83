"""The server's clock: the machine's time at its start, and what has passed since (docs/decisions/0034)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


def _passed_ns() -> int:
    # Where there is one, a clock that goes on while the machine sleeps.
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def steady_clock(
    wall: Callable[[], datetime] = lambda: datetime.now(UTC), passed_ns: Callable[[], int] = _passed_ns
) -> Callable[[], datetime]:
    """A clock that nobody can set: it never runs back and never leaps, whatever becomes of the machine's time.

    Deadlines and the order of records within one process may rely on it. A machine whose time was put right is
    believed at the next start.

    Args:
        wall: the machine's time; looked at once, now.
        passed_ns: nanoseconds since any fixed moment.
    """
    began, began_ns = wall(), passed_ns()
    return lambda: began + timedelta(microseconds=(passed_ns() - began_ns) // 1000)
