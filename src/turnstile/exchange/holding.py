"""Keeps calls back while an engine's weights are updated (docs/decisions/0028).

A request to an engine passes its gate. While the gate is closed nothing new reaches the engine, so that whoever
updates the weights can wait until nothing runs. A deadline bounds every hold: nobody waits for a trainer that died.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from datetime import UTC, datetime

from turnstile.errors import EngineError


class HoldExpiry(enum.StrEnum):
    """What becomes of held calls when the deadline passes and nobody released them."""

    REFUSE = "refuse"
    """They fail, and so do later ones until somebody releases them: the weights may be half updated."""
    CONTINUE = "continue"
    """They go on, as if they had been released."""


class _Hold:
    def __init__(self, until: datetime) -> None:
        self.until = until
        self.ended = asyncio.Event()
        """Released, or replaced by another hold."""


class Gate:
    """The gates of all engines."""

    def __init__(self, now: Callable[[], datetime], expiry: HoldExpiry = HoldExpiry.REFUSE) -> None:
        """Begin with all gates open.

        Args:
            now: the clock; of the world, so that a deadline means the same after a restart.
            expiry: what becomes of calls when a deadline passes.
        """
        self.now = now
        self._expiry = expiry
        self._holds: dict[str, _Hold] = {}
        self._running: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()

    def hold(self, engines: Iterable[str], until: datetime) -> None:
        """Close gates until they are released, or the deadline passes. A later hold of an engine replaces its first."""
        for engine in engines:
            earlier = self._holds.get(engine)
            self._holds[engine] = _Hold(until)
            if earlier is not None:
                earlier.ended.set()

    def release(self, engines: Iterable[str]) -> None:
        """Open gates; whoever waits goes on."""
        for engine in engines:
            if (hold := self._holds.pop(engine, None)) is not None:
                hold.ended.set()

    @property
    def holds(self) -> Mapping[str, datetime]:
        """The deadline of each engine whose gate is closed; one that passed lasts only where calls are refused then."""
        return {
            engine: hold.until
            for engine, hold in self._holds.items()
            if self._expiry is HoldExpiry.REFUSE or hold.until > self.now()
        }

    def running(self, engine: str) -> int:
        """How many requests have passed an engine's gate and not come to their end."""
        return self._running[engine]

    def waiting(self, engine: str) -> int:
        """How many requests stand before an engine's gate."""
        return self._waiting[engine]

    @contextlib.asynccontextmanager
    async def passage(self, engine: str) -> AsyncGenerator[float]:
        """Pass an engine's gate for the length of the block; gives the seconds that it was closed.

        Raises: EngineError `policy_hold_expired` with status 503 if the deadline passed and calls are refused then.
        """
        held_s = await self._opened(engine)
        self._running[engine] += 1
        try:
            yield held_s
        finally:
            self._running[engine] -= 1

    async def _opened(self, engine: str) -> float:
        began = self.now()
        if engine not in self._holds:
            return 0.0
        self._waiting[engine] += 1
        try:
            while (hold := self._holds.get(engine)) is not None:
                left_s = (hold.until - self.now()).total_seconds()
                if left_s <= 0:
                    self._expire(engine)
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await hold.ended.wait()
        finally:
            self._waiting[engine] -= 1
        return (self.now() - began).total_seconds()

    def _expire(self, engine: str) -> None:
        if self._expiry is HoldExpiry.CONTINUE:
            return
        named = f" {engine}" if engine else ""
        raise EngineError(
            f"Calls of the engine{named} were held for an update of its weights, and the deadline passed",
            "Send it again later; its trainer releases calls with POST /policy or POST /policy/release",
            code="policy_hold_expired",
            status=503,
        )


def never_held() -> Gate:
    """Gates that nobody closes."""
    return Gate(lambda: datetime.max.replace(tzinfo=UTC))
