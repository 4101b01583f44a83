"""What the trainer says of the engines' weights: in the store before it is in force, so that a restart knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import final

import msgspec

from turnstile.errors import StoreError
from turnstile.exchange.holding import Gate
from turnstile.exchange.policy_log import Announcement, PolicyLog, PolicyState
from turnstile.store import Journal

_META_KEY = "policy"


class KeptPolicy(msgspec.Struct, frozen=True):
    """What the store has of it."""

    state: PolicyState = PolicyState()
    holds: dict[str, datetime] = {}
    """The deadline of each engine whose calls are held, by name."""


class EnginePolicy(msgspec.Struct, frozen=True):
    """One engine in the answer to GET /policy."""

    engine: str
    version: int | None
    """As announced last; null: unknown."""
    label: str
    """The label of that announcement; empty if it had none."""
    held_until: datetime | None
    """null: its calls are not held."""
    running: int
    """Requests that it works on."""
    waiting: int
    """Requests that are held."""


class PolicyPage(msgspec.Struct, frozen=True):
    """The answer to GET /policy."""

    engines: tuple[EnginePolicy, ...]
    labels: dict[str, int]
    """Which version each announced label stands for."""


def kept_policy(meta: str | None) -> KeptPolicy:
    """What an entry of the store says. Raises: StoreError if it cannot be read."""
    if meta is None:
        return KeptPolicy()
    try:
        return msgspec.json.decode(meta, type=KeptPolicy)
    except msgspec.DecodeError as wrong:
        raise StoreError(
            f"What the store keeps of the policy version cannot be read: {wrong}",
            "Restore the journal from a copy, or upgrade Turnstile",
        ) from wrong


@final
class Policy:
    """Announcements and holds, one at a time."""

    def __init__(self, journal: Journal, log: PolicyLog, gate: Gate, now: Callable[[], datetime]) -> None:
        self._journal = journal
        self._log = log
        self._gate = gate
        self._now = now
        self._order = asyncio.Lock()

    async def announce(self, announcement: Announcement) -> None:
        """From now on an engine samples with this version, and its calls are not held any more.

        Raises: CallerError `policy_label_contradicts` or `engine_unknown`; StoreError, and then nothing has changed.
        """
        async with self._order:
            state = self._log.after(announcement)
            named = self._log.named(announcement.engine)
            await self._keep(KeptPolicy(state, self._holds_without(named)))
            self._log.take(state)
            self._gate.release(named)

    async def hold(self, engine: str, deadline_s: float) -> PolicyPage:
        """Keep new requests of an engine, or of all if the name is empty, back for so many seconds at most.

        Raises: CallerError `engine_unknown`; StoreError.
        """
        async with self._order:
            named = self._log.named(engine)
            until = self._now() + timedelta(seconds=deadline_s)
            await self._keep(KeptPolicy(self._log.state(), dict(self._gate.holds) | dict.fromkeys(named, until)))
            self._gate.hold(named, until)
        return self.page()

    async def release(self, engine: str) -> PolicyPage:
        """Let held requests go on under the version that was announced last. Raises: as `hold`."""
        async with self._order:
            named = self._log.named(engine)
            await self._keep(KeptPolicy(self._log.state(), self._holds_without(named)))
            self._gate.release(named)
        return self.page()

    async def forget(self, engine: str) -> None:
        """An engine came back and may have been started again, with other weights: its version is unknown.

        Raises: CallerError `engine_unknown`; StoreError.
        """
        async with self._order:
            state = self._log.without(engine)
            await self._keep(KeptPolicy(state, dict(self._gate.holds)))
            self._log.take(state)

    def page(self) -> PolicyPage:
        """What is in force."""
        state, holds = self._log.state(), self._gate.holds
        return PolicyPage(
            tuple(
                EnginePolicy(
                    name,
                    standing.version,
                    standing.label,
                    holds.get(name),
                    self._gate.running(name),
                    self._gate.waiting(name),
                )
                for name, standing in state.engines.items()
            ),
            state.labels,
        )

    def _holds_without(self, named: tuple[str, ...]) -> dict[str, datetime]:
        return {engine: until for engine, until in self._gate.holds.items() if engine not in named}

    async def _keep(self, kept: KeptPolicy) -> None:
        await self._journal.set_meta(_META_KEY, msgspec.json.encode(kept).decode())
