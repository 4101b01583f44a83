"""The journal's reading half; any number of them, in any process, also while one writes."""

from __future__ import annotations

import enum
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TypeAlias, final

import msgspec

from turnstile.errors import StoreError
from turnstile.journal import Record, RolloutStatus, decode
from turnstile.store.faults import fault, is_damage
from turnstile.store.schema import JOURNAL_FILE, open_readonly
from turnstile.store.tables import checksum
from turnstile.store.tombstones import SELECT_TOMBSTONE, Tombstone, tombstone_of

_PAGE = 64
"""Records read at a time, so that a long rollout is never whole in memory."""
_SUMMARIES = 1000
"""Attempts that are listed at a time."""

_MARKS = "FROM exports WHERE exports.rollout_id = rollouts.rollout_id AND exports.attempt = rollouts.attempt"
_SUMMARY = f"""SELECT number, rollout_id, attempt, status, opened_at, finished_at, group_id, task_id, sample_index,
    parent_rollout_id, agent_name, calls, turns, failed_calls, forks, sampled_tokens, reward,
    (SELECT max(exported_at) {_MARKS}), (SELECT destination {_MARKS} ORDER BY exported_at DESC LIMIT 1) FROM rollouts"""
_RECORDS = """SELECT seq, crc32, body FROM records
    WHERE rollout_id = ? AND attempt = ? AND seq > ? ORDER BY seq LIMIT ?"""
_IS_LATEST = """NOT EXISTS (SELECT 1 FROM rollouts AS later
    WHERE later.rollout_id = rollouts.rollout_id AND later.attempt > rollouts.attempt)"""

_Value: TypeAlias = str | int
_Row: TypeAlias = tuple[str | int | float | bytes | None, ...]


class RolloutSummary(msgspec.Struct, frozen=True):
    """One attempt of a rollout, without its records."""

    number: int
    """Position in the order of opening; the cursor of a listing."""
    rollout_id: str
    attempt: int
    status: RolloutStatus
    opened_at: datetime
    finished_at: datetime | None = None
    group_id: str | None = None
    task_id: str | None = None
    sample_index: int | None = None
    parent_rollout_id: str | None = None
    agent_name: str | None = None
    calls: int = 0
    """Calls that an engine was to hear of."""
    turns: int = 0
    """Calls that were answered."""
    failed_calls: int = 0
    forks: int = 0
    """Calls whose prompt did not keep the whole held prefix: forked or rendered again."""
    sampled_tokens: int = 0
    """Of all choices of all answered calls."""
    reward: float | None = None
    exported_at: datetime | None = None
    """When it last left for somewhere; None: it is only here."""
    exported_to: str | None = None
    """Where it went then."""


class Exported(enum.StrEnum):
    """Whether an attempt has left the store."""

    YES = "yes"
    NO = "no"


_IS_EXPORTED = {Exported.YES: f"EXISTS (SELECT 1 {_MARKS})", Exported.NO: f"NOT EXISTS (SELECT 1 {_MARKS})"}


@final
class Reader:
    """A read-only view of a store. It always shows a prefix of what was appended, never a part of a commit."""

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        """Own a connection; `open` makes one."""
        self._file = file
        self._connection = connection
        self._turn = threading.Lock()
        self.damage_met = ""
        """What was found to be damaged last, as a sentence; empty as long as nothing was."""

    @classmethod
    def open(cls, directory: Path) -> Reader:
        """Open the store in a directory. Raises: StoreError if there is none or it cannot be read."""
        file = directory / JOURNAL_FILE
        return cls(file, open_readonly(file))

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the store go; a second call does nothing."""
        self._connection.close()

    def records(self, rollout_id: str, attempt: int | None = None) -> Iterator[Record]:
        """The records of one attempt in the order of their appends, the latest attempt if none is named.

        Lazy: what is appended while it runs may show up at the end. Empty for a rollout that is not there.
        Raises: StoreError that names the record which is damaged, or says that the attempt was deleted, even while
            it was read: what came before is not all of it then.
        """
        attempt = self.latest_attempt(rollout_id) if attempt is None else attempt
        last = 0
        while page := self._select(_RECORDS, (rollout_id, attempt, last, _PAGE)):
            for row in page:
                record, number = self._decode(rollout_id, row)
                if number <= last:
                    # A damaged index gives the same rows for ever.
                    raise self._damaged(rollout_id, number, f"it comes behind record {last}")
                last = number
                yield record
        self._refuse_deleted(rollout_id, attempt)

    def _refuse_deleted(self, rollout_id: str, attempt: int) -> None:
        gone = self._select("SELECT 1 FROM tombstones WHERE rollout_id = ? AND attempt = ?", (rollout_id, attempt))
        if gone:
            raise StoreError(
                f"Attempt {attempt} of rollout `{rollout_id}` was deleted",
                "Take it from where it was exported to",
                code="rollout_deleted",
                status=410,
            )

    def rollouts(  # noqa: PLR0913 - what a listing may be narrowed by, all by name
        self,
        *,
        group_id: str | None = None,
        task_id: str | None = None,
        status: RolloutStatus | None = None,
        exported: Exported | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[RolloutSummary]:
        """One page of attempts in the order in which they were opened.

        Args:
            group_id: only this group; None = any.
            task_id: only this task; None = any.
            status: only this status; None = any.
            exported: only those that have left the store, or have not; None = any.
            after: the `number` of the last summary of the page before; 0 = the first page.
            limit: how many at most.

        Raises: StoreError.
        """
        named: list[tuple[str, _Value]] = [("number > ?", after)]
        named += [("group_id = ?", group_id)] if group_id is not None else []
        named += [("task_id = ?", task_id)] if task_id is not None else []
        named += [("status = ?", status.value)] if status is not None else []
        clauses = " AND ".join([*(clause for clause, _ in named), *([_IS_EXPORTED[exported]] if exported else [])])
        values = (*(value for _, value in named), limit)
        page = self._summaries(f"{_SUMMARY} WHERE {clauses} ORDER BY number LIMIT ?", values)
        if page and page[-1].number <= after:
            # A damaged table gives the same page for ever.
            raise self._row_damaged(f"what comes behind row {after} is row {page[-1].number}")
        return page

    def every_rollout(self, group_id: str | None = None) -> Iterator[RolloutSummary]:
        """All attempts in the order in which they were opened, of one group if it is named, a page in memory at a time.

        Raises: StoreError.
        """
        after = 0
        while page := self.rollouts(group_id=group_id, after=after, limit=_SUMMARIES):
            yield from page
            after = page[-1].number

    def rollout(self, rollout_id: str) -> RolloutSummary | None:
        """The latest attempt of a rollout; None if it was never opened. Raises: StoreError."""
        found = self._summaries(f"{_SUMMARY} WHERE rollout_id = ? ORDER BY attempt DESC LIMIT 1", (rollout_id,))
        return found[0] if found else None

    def open_rollouts(self) -> list[RolloutSummary]:
        """All rollouts whose latest attempt is still running. Raises: StoreError."""
        running = (RolloutStatus.RUNNING.value,)
        return self._summaries(f"{_SUMMARY} WHERE status = ? AND {_IS_LATEST} ORDER BY number", running)

    def latest_attempt(self, rollout_id: str) -> int:
        """The number of a rollout's latest attempt; 0 if it was never opened. Raises: StoreError."""
        summary = self.rollout(rollout_id)
        return summary.attempt if summary else 0

    def tombstones(self, *, after: int = 0, limit: int = 100) -> list[Tombstone]:
        """One page of the attempts that were deleted, in the order in which they were opened. Raises: StoreError."""
        return self._tombstones(f"{SELECT_TOMBSTONE} WHERE number > ? ORDER BY number LIMIT ?", (after, limit))

    def deleted(self, rollout_id: str) -> Tombstone | None:
        """The latest attempt of a rollout that was deleted; None if none was. Raises: StoreError."""
        found = self._tombstones(
            f"{SELECT_TOMBSTONE} WHERE rollout_id = ? ORDER BY attempt DESC LIMIT 1", (rollout_id,)
        )
        return found[0] if found else None

    def _tombstones(self, query: str, values: Sequence[_Value]) -> list[Tombstone]:
        return [tombstone_of(row) for row in self._select(query, values)]

    def meta(self, key: str) -> str | None:
        """A fact about the store itself; None if it was never set. Raises: StoreError."""
        found = self._select("SELECT value FROM meta WHERE key = ?", (key,))
        return str(found[0][0]) if found else None

    def damage(self) -> list[str]:
        """What SQLite finds wrong with the file's own structure, a sentence each; reads all of it.

        Raises: StoreError if even that cannot be asked.
        """
        found = [str(row[0]) for row in self._select("PRAGMA integrity_check(100)", ())]
        return [] if found == ["ok"] else found

    def metas(self) -> dict[str, str]:
        """All facts about the store itself, by key. Raises: StoreError."""
        return {str(key): str(value) for key, value in self._select("SELECT key, value FROM meta ORDER BY key", ())}

    def _summaries(self, query: str, values: Sequence[_Value]) -> list[RolloutSummary]:
        return [self._summary(row) for row in self._select(query, values)]

    def _summary(self, row: _Row) -> RolloutSummary:
        try:
            return msgspec.convert(dict(zip(RolloutSummary.__struct_fields__, row, strict=True)), RolloutSummary)
        except msgspec.ValidationError as damaged:
            raise self._row_damaged(f"row {row[:3]}: {damaged}") from damaged

    def _row_damaged(self, why: str) -> StoreError:
        return self._noted(
            f"The listing in `{self._file}` is damaged: {why}",
            "Save what is left of it in a new store: `turnstile store salvage STORE NEW`",
            code="row_damaged",
        )

    def _select(self, query: str, values: Sequence[_Value]) -> list[_Row]:
        try:
            with self._turn:
                return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            found = fault(error, self._file, "read")
            if is_damage(error):
                self.damage_met = found.problem
            raise found from error

    def _decode(self, rollout_id: str, row: _Row) -> tuple[Record, int]:
        match row:
            case (int(seq), int(crc32), bytes(body)):
                pass
            case _:
                raise self._damaged(rollout_id, row[0], "its columns have other types")
        if checksum(body) != crc32:
            raise self._damaged(rollout_id, seq, "its bytes are not the ones that were written")
        try:
            return decode(body), seq
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise self._damaged(rollout_id, seq, str(error)) from error

    def _damaged(self, rollout_id: str, seq: object, why: str) -> StoreError:
        return self._noted(
            f"Record {seq} of rollout `{rollout_id}` in `{self._file}` is damaged: {why}",
            "Take a copy of the store and export the other rollouts by name",
            code="record_damaged",
        )

    def _noted(self, problem: str, remedy: str, *, code: str) -> StoreError:
        self.damage_met = problem
        return StoreError(problem, remedy, code=code)
