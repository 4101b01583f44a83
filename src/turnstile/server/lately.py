"""What went wrong lately, and how late the event loop was: what a server's health is judged by."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import final

LATELY_S = 60.0
"""How long something that went wrong counts."""
_KEPT = 10_000
LAG_EVERY_S = 0.1


@final
class Lately:
    """Counts what happened within the last minute. Used from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, lately_s: float = LATELY_S) -> None:
        self._clock = clock
        self._lately_s = lately_s
        self._times: deque[float] = deque(maxlen=_KEPT)

    def note(self) -> None:
        """It happened now."""
        self._times.append(self._clock())

    @property
    def count(self) -> int:
        """How often it happened; of more than 10,000 times the last ones."""
        since = self._clock() - self._lately_s
        return sum(1 for at in tuple(self._times) if at >= since)


@final
class LoopLag:
    """How late an event loop comes back to who asked to be woken: for so long nobody else was served either."""

    def __init__(
        self, observe: Callable[[float], None], clock: Callable[[], float] = time.monotonic, lately_s: float = LATELY_S
    ) -> None:
        """Measure nothing yet.

        Args:
            observe: told each measure, in seconds.
            clock: seconds, never going back.
            lately_s: how long a measure counts for `worst_s`.
        """
        self._observe = observe
        self._clock = clock
        self._lately_s = lately_s
        self._worst: deque[tuple[float, float]] = deque()

    async def watch(self, every_s: float = LAG_EVERY_S) -> None:
        """Measure again and again, until cancelled."""
        while True:
            began = self._clock()
            await asyncio.sleep(every_s)
            self.measured(max(0.0, self._clock() - began - every_s))

    def measured(self, late_s: float) -> None:
        """Take a measure."""
        self._observe(late_s)
        now = self._clock()
        # Falling from the oldest on: what is older and smaller than another is never the worst again.
        while self._worst and self._worst[-1][1] <= late_s:
            self._worst.pop()
        self._worst.append((now, late_s))
        self._forget(now)

    @property
    def worst_s(self) -> float:
        """The worst measure of the last minute, in seconds."""
        self._forget(self._clock())
        return self._worst[0][1] if self._worst else 0.0

    def _forget(self, now: float) -> None:
        while self._worst and self._worst[0][0] < now - self._lately_s:
            self._worst.popleft()
