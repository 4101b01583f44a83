"""One attempt of one rollout in memory: a forest that grows by what the journal has, and the calls in the air."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable

from turnstile.conversation import Answer, Call
from turnstile.errors import StoreError
from turnstile.exchange.inflight import Flight
from turnstile.exchange.repeats import Repeats, answer_of
from turnstile.history.forest import Forest
from turnstile.journal import AnswerUndelivered, CallFailed, CallStarted, Record, RolloutOpened
from turnstile.store import Journal

_BYTES_A_STORED_BYTE = 3
"""What a forest takes in memory for each byte of its records, by tracemalloc on rollouts of many short turns."""

RECORDED_REFUSALS = 200
"""So many refused requests of a rollout are recorded; of later ones those whose number is a power of two."""


def _unnoticed(_grown: int) -> None:
    """Nobody counts."""


class OpenRollout:
    """One attempt of one rollout, in memory."""

    def __init__(
        self,
        forest: Forest,
        opened: RolloutOpened,
        journal: Journal,
        heard: set[str] | None = None,
        stored_bytes: int = 0,
    ) -> None:
        """Grow a forest from here on.

        Args:
            forest: the fold of what the journal has.
            opened: its first record.
            journal: where it goes on.
            heard: calls whose answers are known to have arrived, beyond what the journal says.
            stored_bytes: how long the forest's records are in the journal.
        """
        self.forest = forest
        self.opened = opened
        self.closing = False
        self.repeats = Repeats(forest, heard)
        self.weight = _BYTES_A_STORED_BYTE * stored_bytes
        """About how many bytes of memory it takes."""
        self.grew: Callable[[int], None] = _unnoticed
        """Told by how many bytes it has grown."""
        self.refusals = len(forest.refused)
        """How many of its requests were refused, recorded or not; after a restart those that were recorded."""
        self._journal = journal
        self._order = asyncio.Lock()
        self._owed: list[Record] = []
        """What could not be written when it was due, and goes before the next record."""
        # Numbers of calls that never began are nowhere in the journal, so they are not counted but read off.
        self._next = 1 + max((int(call_id[1:]) for call_id in forest.calls), default=-1)
        self.last_engine = ""
        """The name of the engine that the last call went to; empty if there was none, or it has no name."""
        for state in forest.calls.values():
            self.last_engine = state.started.engine_name

    async def keep(self, record: Record) -> None:
        """Make a record durable, then let the forest grow by it; records of a rollout keep one order.

        Raises: StoreError if it contradicts the records before it, or cannot be written; then nothing has changed.
        """
        async with self._order:
            await self._pay()
            await self._write(record)

    async def keep_at_last(self, record: CallFailed | AnswerUndelivered) -> None:
        """Keep what has become of a call, now or before the next record, whenever the journal takes it.

        A call that has begun has an end, also where the disk is full when it ends (docs/decisions/0034). One that
        never began in the journal is not remembered for it.
        """
        try:
            await self.keep(record)
        except (StoreError, asyncio.CancelledError) as cut_short:
            if record.call_id and not self._holds(record):
                self._owed.append(record)
                # Whoever counts keeps it in memory from now on.
                self.grew(0)
            if isinstance(cut_short, asyncio.CancelledError):
                raise

    def _holds(self, record: CallFailed | AnswerUndelivered) -> bool:
        state = self.forest.calls.get(record.call_id)
        return state is not None and record in (state.failed, state.undelivered)

    async def _pay(self) -> None:
        """Write what could not be written when it was due. Raises: StoreError if it still cannot be."""
        while self._owed:
            owed = self._owed.pop(0)
            if not self.forest.allows(owed):
                continue
            try:
                await self._write(owed)
            except StoreError:
                self._owed.insert(0, owed)
                raise

    async def _write(self, record: Record) -> None:
        self.forest.check(record)
        try:
            stored_bytes = await self._journal.append(record, self.opened.attempt)
        except asyncio.CancelledError:
            # The journal tells a cancelled caller so only once the record is on disk.
            self._grow(record)
            raise
        self._grow(record)
        grown = _BYTES_A_STORED_BYTE * stored_bytes
        self.weight += grown
        self.grew(grown)

    @property
    def unwritten(self) -> set[str]:
        """What only memory knows of it: the calls whose answers arrived since its last record."""
        return self.repeats.heard

    @property
    def is_busy(self) -> bool:
        """Whether a call of it is running, or something of it is yet to be written."""
        return bool(self.repeats.running or self._owed)

    def leave(self) -> None:
        """It is over: what still comes is written, and weighs nothing any more."""
        self.grew = _unnoticed

    def _grow(self, record: Record) -> None:
        self.forest.apply(record)
        if isinstance(record, CallStarted):
            self.last_engine = record.engine_name

    def answered(self, call_id: str) -> Answer | None:
        """The durable answer of a call; None if it has none."""
        state = self.forest.calls.get(call_id)
        return answer_of(state) if state is not None and state.committed is not None else None

    def take_off(self, call: Call, digest: str) -> Flight:
        """A new flight for a call that is to be sampled."""
        flight = Flight(digest, call.retry.idempotency_key, f"c{self._next}")
        self._next += 1
        self.repeats.took_off(flight)
        return flight

    def counts_refusal(self) -> bool:
        """Count a refused request; whether it is to be recorded (docs/decisions/0030)."""
        self.refusals += 1
        return self.refusals <= RECORDED_REFUSALS or self.refusals.bit_count() == 1

    def admits(self, key: str) -> bool:
        """Whether an agent's key opens this rollout; constant time."""
        return hmac.compare_digest(key_hash(key), self.opened.agent_key_sha256)


def key_hash(key: str) -> str:
    """What is stored of an agent's key."""
    return hashlib.sha256(key.encode()).hexdigest()
