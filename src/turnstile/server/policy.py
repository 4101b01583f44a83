"""What the trainer says of the engines' weights: in the store before it is in force, so that a restart knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import final

import msgspec

from turnstile.errors import StoreError
from turnstile.exchange.holding import Gate
from turnstile.exchange.policy_log import Announcement, EnginePolicy, PolicyLog, PolicyPage, PolicyState
from turnstile.store import Journal, Reader

_META_KEY = "policy"


class KeptPolicy(msgspec.Struct, frozen=True):
    """What the store has of it."""

    state: PolicyState = PolicyState()
    holds: dict[str, datetime] = {}
    """The deadline of each engine whose calls are held, by name."""


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

    def __init__(self, journal: Journal, log: PolicyLog, gate: Gate) -> None:
        self.log = log
        self.gate = gate
        self._journal = journal
        self._order = asyncio.Lock()

    @classmethod
    def restored(cls, journal: Journal, reader: Reader, engines: Sequence[str], gate: Gate) -> Policy:
        """Go on with what the store has of these engines. Raises: StoreError if it cannot be read."""
        kept = kept_policy(reader.meta(_META_KEY))
        for engine, until in kept.holds.items():
            gate.hold({engine}.intersection(engines), until)
        return cls(journal, PolicyLog(engines, kept.state), gate)

    async def announce(self, announcement: Announcement) -> None:
        """From now on an engine samples with this version, and its calls are not held any more.

        Raises: CallerError `policy_label_contradicts` or `engine_unknown`; StoreError, and then nothing has changed.
        """
        async with self._order:
            state = self.log.after(announcement)
            named = self.log.named(announcement.engine)
            await self._keep(KeptPolicy(state, self._holds_without(named)))
            self.log.take(state)
            self.gate.release(named)

    async def hold(self, engine: str, deadline_s: float) -> PolicyPage:
        """Keep new requests of an engine, or of all if the name is empty, back for so many seconds at most.

        Raises: CallerError `engine_unknown`; StoreError.
        """
        async with self._order:
            named = self.log.named(engine)
            until = self.gate.now() + timedelta(seconds=deadline_s)
            await self._keep(KeptPolicy(self.log.state(), dict(self.gate.holds) | dict.fromkeys(named, until)))
            self.gate.hold(named, until)
        return self.page()

    async def release(self, engine: str) -> PolicyPage:
        """Let held requests go on under the version that was announced last. Raises: as `hold`."""
        async with self._order:
            named = self.log.named(engine)
            await self._keep(KeptPolicy(self.log.state(), self._holds_without(named)))
            self.gate.release(named)
        return self.page()

    async def forget(self, engine: str) -> None:
        """An engine came back and may have been started again, with other weights: its version is unknown.

        Raises: CallerError `engine_unknown`; StoreError.
        """
        async with self._order:
            state = self.log.without(engine)
            await self._keep(KeptPolicy(state, dict(self.gate.holds)))
            self.log.take(state)

    def page(self) -> PolicyPage:
        """What is in force."""
        state, holds = self.log.state(), self.gate.holds
        return PolicyPage(
            tuple(
                EnginePolicy(
                    name,
                    standing.version,
                    standing.label,
                    holds.get(name),
                    self.gate.running(name),
                    self.gate.waiting(name),
                )
                for name, standing in state.engines.items()
            ),
            state.labels,
        )

    def _holds_without(self, named: tuple[str, ...]) -> dict[str, datetime]:
        return {engine: until for engine, until in self.gate.holds.items() if engine not in named}

    async def _keep(self, kept: KeptPolicy) -> None:
        await self._journal.set_meta(_META_KEY, msgspec.json.encode(kept).decode())
