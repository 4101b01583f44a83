"""The rollouts of this process: opened on demand from the journal, grown by one function, closed for good."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated

import msgspec
import orjson

from turnstile.conversation import JsonText
from turnstile.errors import CallerError, StoreError
from turnstile.exchange.closed import ClosedRollouts
from turnstile.exchange.idle import IdleWatch
from turnstile.exchange.inflight import Flight
from turnstile.exchange.open_rollout import RECORDED_REFUSALS, OpenRollout, key_hash
from turnstile.exchange.refusals import ended_before, gone, kept, not_found
from turnstile.exchange.residents import QUIET_S, Residents
from turnstile.generation import Retention
from turnstile.history.forest import Forest
from turnstile.journal import (
    CallFailed,
    CallJoined,
    CallRejected,
    RolloutFinished,
    RolloutOpened,
    RolloutStatus,
    SuspectLogprobs,
    encode,
)
from turnstile.protocols.keepable import check_json
from turnstile.reasons import DeleteReason, EndReason, FailReason
from turnstile.store import Journal, Reader
from turnstile.store.deletion import Deletion, Kept, Unexported, delete
from turnstile.store.tombstones import Tombstone

_LOCKS = 64
ROLLOUT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a runner says about a rollout that it opens."""

    rollout_id: str | None = None
    group_id: str | None = None
    task_id: str | None = None
    sample_index: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    parent_rollout_id: str | None = None
    agent_name: str | None = None
    metadata: dict[str, msgspec.Raw] = {}


class Ending(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a runner says about a rollout that it closes."""

    status: RolloutStatus = RolloutStatus.COMPLETED
    reward: float | None = None
    rewards: dict[str, float | None] = {}
    metadata: dict[str, msgspec.Raw] = {}


def _nowhere(_rollout_id: str) -> str:
    """There is no other process."""
    return ""


class Policies(msgspec.Struct, frozen=True):
    """What is decided of a rollout when it begins, and recorded with it."""

    retention: Retention = Retention.RETAIN
    suspect_logprobs: SuspectLogprobs = SuspectLogprobs.MARK
    memory_bytes: int = 1 << 30
    """How much rollouts that nobody uses may take in memory, with those in use."""
    quiet_s: float = QUIET_S
    """For how long nobody must have used one that leaves memory."""
    may_begin: Callable[[], None] = lambda: None
    """Raises: TurnstileError while no rollout may begin."""
    held_elsewhere: Callable[[str], str] = _nowhere
    """Name of another process's store that has a rollout; empty if none has. It may block."""
    idle_timeout_s: float = 0.0
    """After how long without a call an open rollout is closed; 0: never."""


class Rollouts:
    """All rollouts that this process has open; a rollout not in memory is read back from the journal."""

    def __init__(
        self,
        journal: Journal,
        reader: Reader,
        now: Callable[[], datetime],
        policies: Policies,
    ) -> None:
        """Keep rollouts in a journal.

        Args:
            journal: where they are written.
            reader: where they are read back from.
            now: the clock.
            policies: those of rollouts that begin from now on; one that is open keeps its own.
        """
        self._policies = policies
        self._journal = journal
        self._reader = reader
        self._now = now
        self.residents: Residents[OpenRollout] = Residents(policies.memory_bytes, time.monotonic, policies.quiet_s)
        self._shut = ClosedRollouts(journal)
        self.idle = IdleWatch(policies.idle_timeout_s, time.monotonic)
        # One opening or loading at a time for each id; ids share locks, so that the locks do not grow with them.
        self._locks = tuple(asyncio.Lock() for _ in range(_LOCKS))

    def __len__(self) -> int:
        return len(self.residents)

    def _lock(self, rollout_id: str) -> asyncio.Lock:
        return self._locks[hash(rollout_id) % _LOCKS]

    async def get(self, rollout_id: str) -> OpenRollout:
        """The latest attempt of a rollout.

        Raises: CallerError 404 if there is none, 410 if it was deleted.
        """
        if found := self.residents.get(rollout_id):
            return found
        async with self._lock(rollout_id):
            if (found := self.residents.get(rollout_id) or await self._closed(rollout_id)) is not None:
                return found
            loaded = await self._load(rollout_id)
            if loaded is None or loaded.closing:
                await self._refuse_deleted(rollout_id, loaded)
        if loaded is None:
            raise not_found(rollout_id)
        return self._shut.put(loaded) if loaded.closing else loaded

    async def _closed(self, rollout_id: str) -> OpenRollout | None:
        """What is remembered of a closed rollout, unless it was deleted meanwhile."""
        shut = self._shut.get(rollout_id)
        if shut is not None and await self._deleted_since(rollout_id, shut.opened.attempt - 1):
            self._shut.drop(rollout_id)
            return None
        return shut

    async def _refuse_deleted(self, rollout_id: str, earlier: OpenRollout | None) -> None:
        """Refuse a rollout whose latest attempt was deleted: an earlier one is not given in its place."""
        stone = await self._deleted_since(rollout_id, 0 if earlier is None else earlier.opened.attempt)
        if stone is not None:
            raise gone(stone)

    async def _deleted_since(self, rollout_id: str, attempt: int) -> Tombstone | None:
        """The tombstone of the latest deleted attempt, if it came after one."""
        stone = await asyncio.to_thread(self._reader.deleted, rollout_id)
        return stone if stone is not None and stone.attempt > attempt else None

    async def get_or_create(self, rollout_id: str) -> OpenRollout:
        """The same, but an unknown rollout begins with its first use."""
        try:
            return await self.get(rollout_id)
        except CallerError as missing:
            if missing.code != "rollout_not_found":
                raise
            try:
                return await self.create(Opening(rollout_id=rollout_id), agent_key="", opened_by="first_use")
            except CallerError as lost_race:
                if lost_race.code != "rollout_open":
                    raise
                return await self.get(rollout_id)

    async def create(self, opening: Opening, agent_key: str, opened_by: str = "operator") -> OpenRollout:
        """Open a rollout, or the next attempt of a closed one.

        Raises: CallerError 409 if it is open, 400 if the id cannot stand in a path, 421 if another process has it;
        StoreError if that cannot be told, TurnstileError `disk_low` while no rollout may begin.
        """
        rollout_id = opening.rollout_id or fresh_rollout_id()
        if not ROLLOUT_ID.fullmatch(rollout_id):
            raise CallerError(
                f"`{rollout_id[:128]}` is no rollout id",
                "Use 1 to 128 of A-Z a-z 0-9 . _ -, beginning with a letter or digit",
                code="rollout_id_invalid",
                param="rollout_id",
            )
        self._policies.may_begin()
        async with self._lock(rollout_id):
            earlier = self.residents.get(rollout_id) or await self._load(rollout_id)
            if earlier is not None and earlier.forest.finished is None:
                raise CallerError(
                    f"Rollout `{rollout_id}` is open",
                    "Finish it first; then the same id starts its next attempt",
                    code="rollout_open",
                    status=409,
                )
            if earlier is None:
                await self._refuse_held_elsewhere(rollout_id)
            stone = await asyncio.to_thread(self._reader.deleted, rollout_id)
            record = RolloutOpened(
                rollout_id=rollout_id,
                attempt=1 + max(earlier.opened.attempt if earlier else 0, stone.attempt if stone else 0),
                opened_at=self._now(),
                group_id=opening.group_id,
                task_id=opening.task_id,
                sample_index=opening.sample_index,
                parent_rollout_id=opening.parent_rollout_id,
                agent_name=opening.agent_name,
                metadata=json_text(opening.metadata),
                agent_key_sha256=key_hash(agent_key) if agent_key else "",
                opened_by=opened_by,
                retention=self._policies.retention,
                suspect_logprobs=self._policies.suspect_logprobs,
            )
            self._shut.drop(rollout_id)
            stored_bytes = await self._journal.append(record)
            rollout = OpenRollout(Forest.of([record]), record, self._journal, stored_bytes=stored_bytes)
            self._settle(rollout)
            self.idle.touched(rollout_id)
        return rollout

    async def _refuse_held_elsewhere(self, rollout_id: str) -> None:
        holder = await asyncio.to_thread(self._policies.held_elsewhere, rollout_id)
        if holder:
            raise CallerError(
                f"Rollout `{rollout_id}` is in the store `{holder}` of another process",
                "Send all requests of a rollout to one process (docs/several-processes.md)",
                code="rollout_elsewhere",
                status=421,
            )

    async def _load(self, rollout_id: str) -> OpenRollout | None:
        forest, stored_bytes = await asyncio.to_thread(self._stored, rollout_id)
        if forest.opened is None:
            return None
        heard = self.residents.unwritten(rollout_id)
        rollout = OpenRollout(forest, forest.opened, self._journal, heard, stored_bytes)
        rollout.closing = forest.finished is not None
        for started in forest.open_calls:
            await rollout.keep(
                CallFailed(
                    rollout_id=rollout_id,
                    call_id=started.call_id,
                    failed_at=self._now(),
                    reason=FailReason.INTERRUPTED,
                    problem="Turnstile ended while the call was running",
                )
            )
            rollout.repeats.interrupted(started)
        # A closed rollout is read again when it is asked for: memory holds what is being worked on.
        if not rollout.closing:
            self._settle(rollout)
        return rollout

    def _stored(self, rollout_id: str) -> tuple[Forest, int]:
        """The forest of a rollout's latest attempt, and how long its records are; blocks."""
        records = list(self._reader.records(rollout_id))
        return Forest.of(records), sum(len(encode(record)) for record in records)

    def _settle(self, rollout: OpenRollout) -> None:
        rollout_id = rollout.opened.rollout_id
        self.residents.put(rollout_id, rollout)
        rollout.grew = partial(self._grew, rollout_id)

    def _grew(self, rollout_id: str, by_bytes: int) -> None:
        self.idle.touched(rollout_id)
        self.residents.grew(rollout_id, by_bytes)

    async def finish(self, rollout_id: str, ending: Ending, patience_s: float) -> OpenRollout:
        """Close a rollout: no new calls, running ones may end, then it is frozen.

        Raises: CallerError 404 if there is none, 409 if it is closed, 400 on a status that is no end.
        """
        rollout = await self.get(rollout_id)
        if ending.status is RolloutStatus.RUNNING:
            raise CallerError(
                "`running` is no way to end", "Send completed, failed, truncated or aborted", param="status"
            )
        if rollout.closing:
            raise ended_before(rollout_id, rollout.forest.finished)
        ended = RolloutFinished(
            rollout_id=rollout_id,
            finished_at=self._now(),
            status=ending.status,
            reward=ending.reward,
            rewards=dict(ending.rewards),
            metadata=json_text(ending.metadata),
        )
        return await self._close(rollout, ended, patience_s)

    async def close_idle(self, rollout_id: str) -> OpenRollout | None:
        """Close a rollout that has had no call for too long; None if it has had one, or is closed, or is gone.

        Raises: StoreError.
        """
        if not self.idle.is_idle(rollout_id):
            return None
        try:
            rollout = await self.get(rollout_id)
        except CallerError:
            return None
        # Nothing is waited for from here until it is closing: a call that comes finds it idle no more, or closing.
        if rollout.closing or rollout.repeats.running or not self.idle.is_idle(rollout_id):
            return None
        limit = orjson.dumps({"idle_timeout_s": self.idle.limit_s}).decode()
        ended = RolloutFinished(
            rollout_id, self._now(), RolloutStatus.ABORTED, metadata=limit, reason=EndReason.IDLE_TIMEOUT
        )
        return await self._close(rollout, ended, 0.0)

    async def _close(self, rollout: OpenRollout, ended: RolloutFinished, patience_s: float) -> OpenRollout:
        """No new calls from now on; then, when the running ones have ended, no more records."""
        rollout.closing = True
        running = [flight.task for flight in rollout.repeats.running if flight.task is not None]
        if running:
            _, late = await asyncio.wait(running, timeout=patience_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        try:
            await rollout.keep(msgspec.structs.replace(ended, finished_at=self._now()))
        except StoreError:
            rollout.closing = False
            raise
        self.residents.drop(ended.rollout_id)
        rollout.leave()
        self.idle.forget(ended.rollout_id)
        return rollout

    async def delete(self, rollout_id: str, attempt: int | None, unexported: Unexported) -> tuple[Tombstone, ...]:
        """Delete one attempt of a rollout, or all of them; what stays is a tombstone for each.

        Raises: CallerError 404 if there is none, 409 if one is open or nobody has it, 410 if they are deleted already.
        """
        deletion = Deletion(self._now(), DeleteReason.ASKED, unexported)
        # Nobody opens, loads or closes it meanwhile; a reader in the middle of it is told (`Reader.records`).
        async with self._lock(rollout_id):
            went = await asyncio.to_thread(
                self._journal.change, lambda connection: delete(connection, rollout_id, attempt, deletion)
            )
            if isinstance(went, Kept):
                raise kept(rollout_id, went)
            if not went:
                await self._refuse_deleted(rollout_id, None)
                raise not_found(rollout_id)
        return went

    def abandon_running(self) -> None:
        """Give up every running call: the process is about to end."""
        for rollout in self.residents:
            for flight in rollout.repeats.running:
                if flight.task is not None:
                    flight.task.cancel()

    async def reject(self, rollout: OpenRollout, reason: str) -> CallerError:
        """Record a call that came after the end; answers the error for the agent.

        Only so many are recorded: an agent that never gives up must not fill the journal. The figures count all.
        """
        if len(rollout.forest.rejected) < RECORDED_REFUSALS:
            await rollout.keep(CallRejected(rollout.opened.rollout_id, self._now(), reason))
        return closed(rollout.opened.rollout_id)

    async def joined(self, rollout: OpenRollout, flight: Flight, how: str) -> None:
        """Record that a retry was given an earlier call's answer."""
        await rollout.keep(CallJoined(rollout.opened.rollout_id, self._now(), flight.call_id, how))


def closed(rollout_id: str) -> CallerError:
    """The error for anything that comes after a rollout's end."""
    return CallerError(
        f"Rollout `{rollout_id}` is closed",
        "Create it again to start its next attempt",
        code="rollout_closed",
        status=409,
    )


def fresh_rollout_id() -> str:
    """An id for a rollout that its runner did not name."""
    return f"ro-{secrets.token_hex(8)}"


def json_text(members: dict[str, msgspec.Raw]) -> JsonText:
    """An object of raw members as JSON text.

    Raises: CallerError if a member is no JSON that can be written again: not UTF-8, a number that no double holds,
        or nested too deeply.
    """
    try:
        for member in members.values():
            check_json(bytes(member).decode(), "metadata")
    except UnicodeDecodeError as wrong:
        raise CallerError(f"`metadata` cannot be kept: {wrong}", "Send UTF-8 in it", param="metadata") from None
    return orjson.dumps({name: orjson.loads(bytes(member)) for name, member in members.items()}).decode()
