"""How the server is: why it is degraded, and what changes in that, told as it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import TypeAlias, final

from turnstile.engines.pool import EngineFigures
from turnstile.exchange.policy_log import EnginePolicy
from turnstile.server.lately import Lately, LoopLag
from turnstile.server.logs import Level, Log

LOOK_EVERY_S = 1.0
LATE_S = 0.5
"""An event loop that is later than this makes a server degraded: clients begin to notice."""

Troubles: TypeAlias = Callable[[], Iterable[str]]
"""What is wrong with one part, in sentences; empty if nothing is."""


@final
class Vitals:
    """Gathers what is wrong with the parts of a server, and tells the log when that changes."""

    def __init__(
        self, log: Log, engines: Callable[[], Iterable[EngineFigures]], troubles: Mapping[str, Troubles]
    ) -> None:
        """Look at nothing yet.

        Args:
            log: told of what changes.
            engines: how each of them is.
            troubles: what else can be wrong, by a word of ours for it.
        """
        self._log = log
        self._engines = engines
        self._troubles = troubles
        self._up: dict[str, bool] = {}
        self._degraded: frozenset[str] = frozenset()

    def reasons(self) -> tuple[str, ...]:
        """Why the server is degraded, in sentences; empty if it is not."""
        return tuple(reason for found in self._found().values() for reason in found)

    def _found(self) -> dict[str, tuple[str, ...]]:
        found = {"engine_down": tuple(_down(tuple(self._engines())))}
        found |= {word: tuple(troubles()) for word, troubles in self._troubles.items()}
        return {word: reasons for word, reasons in found.items() if reasons}

    async def watch(self, every_s: float = LOOK_EVERY_S) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(every_s)

    def look(self) -> None:
        """Tell what has changed since the last look."""
        for each in self._engines():
            if self._up.get(each.name, True) != each.is_up:
                event, level = ("engine_up", Level.INFO) if each.is_up else ("engine_down", Level.ERROR)
                self._log.tell(event, {"engine": each.name, "problem": each.problem}, level)
            self._up[each.name] = each.is_up
        found = self._found()
        for word in found.keys() - self._degraded:
            self._log.tell("degraded", {"reason": word, "problem": " ".join(found[word])}, Level.WARNING)
        for word in self._degraded - found.keys():
            self._log.tell("recovered", {"reason": word})
        self._degraded = frozenset(found)


def _down(engines: tuple[EngineFigures, ...]) -> Iterator[str]:
    several = any(each.is_up for each in engines)
    for each in engines:
        if not each.is_up:
            # Where none is up, what is wrong with each names it already.
            yield f"The engine {each.name} is down: {each.problem}" if several else each.problem


def expired_holds(page: Callable[[], Iterable[EnginePolicy]], now: Callable[[], datetime]) -> Troubles:
    """Calls that are refused because nobody released them in time."""

    def troubles() -> Iterator[str]:
        for each in page():
            if each.held_until is not None and each.held_until <= now():
                yield f"Calls of the engine {each.engine} are refused: they were held, and the deadline passed."

    return troubles


def late_loop(lag: LoopLag) -> Troubles:
    """An event loop that something keeps busy."""
    return lambda: (
        [f"The event loop was {lag.worst_s:.1f} s late within the last minute: calls wait for each other."]
        if lag.worst_s > LATE_S
        else []
    )


def failed_writes(failures: Lately, last: Callable[[], str]) -> Troubles:
    """Records that the journal could not write."""
    return lambda: (
        [f"The journal could not be written {failures.count} times within the last minute: {last()}."]
        if failures.count
        else []
    )


def failed_reads(failures: Lately) -> Troubles:
    """Rollouts that could not be read back."""
    return lambda: (
        [
            f"The store failed {failures.count} calls within the last minute, which may mean that it is damaged: "
            "`turnstile store check` says."
        ]
        if failures.count
        else []
    )


def dropped_lines(log: Log, lately: Lately) -> Troubles:
    """Log lines that nobody read in time."""
    before = log.dropped

    def troubles() -> Iterator[str]:
        nonlocal before
        if log.dropped > before:
            lately.note()
            before = log.dropped
        if lately.count:
            yield f"The log's reader is too slow: {log.dropped} lines were dropped so far."

    return troubles
