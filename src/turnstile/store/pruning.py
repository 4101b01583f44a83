"""Retention: which attempts go, by age and by size, and taking them out in steps that nobody has to wait for.

All of it blocks, in a thread of its own; what it changes is changed in transactions of a few milliseconds each.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar, final

import msgspec

from turnstile.journal import RolloutStatus
from turnstile.reasons import DeleteReason
from turnstile.store.blobs import Blobs, blob_files, draft_files, leaving_name
from turnstile.store.deletion import Deletion, Kept, Swept, Unexported, delete, is_named, sweep
from turnstile.store.faults import fault
from turnstile.store.schema import JOURNAL_FILE, open_readonly

T = TypeVar("T")
BLOB_QUIET_S = 3600.0
"""A blob that was put or asked for so lately may be about to be named by a call."""
_PAGE = 256
_VACUUM_PAGES = 64
_SPARE_PAGES = 1024
"""Free pages that stay, as does a tenth of all, for records to come."""

_MARKS = "FROM exports WHERE exports.rollout_id = rollouts.rollout_id AND exports.attempt = rollouts.attempt"
_ENDED_SINCE = "SELECT finished_at, number, rollout_id, attempt FROM rollouts WHERE (finished_at, number) > (?, ?)"
_IN_ORDER = f"ORDER BY finished_at, number LIMIT {_PAGE}"
_ENDED = f"{_ENDED_SINCE} AND status != ? {_IN_ORDER}"
_ENDED_AND_LEFT = f"{_ENDED_SINCE} AND status != ? AND EXISTS (SELECT 1 {_MARKS}) {_IN_ORDER}"
_NAMES = "SELECT sha256 FROM blob_names WHERE rollout_id = ? AND attempt = ?"
_STORED_BYTES = "SELECT coalesce(sum(length(body)), 0) FROM records WHERE rollout_id = ? AND attempt = ?"


class Keep(msgspec.Struct, frozen=True):
    """What retention keeps; everything, if nothing is said."""

    for_s: float | None = None
    """How long closed attempts are kept; None: for ever."""
    size_bytes: int | None = None
    """How much the store may take, free pages left out; None: any."""
    unexported: Unexported = Unexported.KEEP
    """What becomes of attempts that nobody has taken."""


class Due(msgspec.Struct, frozen=True):
    """An attempt that goes."""

    rollout_id: str
    attempt: int
    reason: DeleteReason
    stored_bytes: int
    """Of its records, and of the blobs that they name, as far as nothing that goes before it names them."""


class Transact(Protocol):
    """Runs a step in a transaction of its own, and waits for its commit."""

    def __call__(self, step: Callable[[sqlite3.Connection], T], /) -> T:
        """Raises: StoreError, and then nothing has changed."""
        ...


class Pruned(msgspec.Struct):
    """What was done."""

    attempts: int = 0
    records: int = 0
    blobs: int = 0
    stored_bytes: int = 0


@final
class Pruner:
    """Takes out of one store what retention does not keep."""

    def __init__(
        self, directory: Path, transact: Transact, now: Callable[[], datetime], go_on: Callable[[], bool]
    ) -> None:
        """Prune a store.

        Args:
            directory: of the store.
            transact: how it is changed.
            now: the clock.
            go_on: asked between two steps, and may wait: False ends the work there, to be gone on with later.
        """
        self._directory = directory
        self._blobs = Blobs(directory)
        self._transact = transact
        self._now = now
        self._go_on = go_on

    def due(self, keep: Keep) -> Iterator[Due]:
        """What would go, the first that was closed first; nothing is changed."""
        with contextlib.closing(open_readonly(self._directory / JOURNAL_FILE)) as look:
            try:
                yield from self._due(keep, look)
            except sqlite3.Error as error:
                raise fault(error, self._directory / JOURNAL_FILE, "find what is old") from error

    def prune(self, keep: Keep, done: Callable[[Due], None]) -> Pruned:
        """Take out what goes, then what earlier deletions left.

        Args:
            keep: what stays.
            done: told of each attempt that went.

        Raises: StoreError.
        """
        pruned = Pruned()
        for due in self.due(keep):
            deletion = Deletion(self._now(), due.reason, keep.unexported)
            # Looked at again where it is deleted: it may have gone, or come back, since it was listed.
            went = self._transact(lambda at, due=due, how=deletion: delete(at, due.rollout_id, due.attempt, how))
            if not isinstance(went, Kept) and went:
                pruned.attempts += 1
                pruned.stored_bytes += due.stored_bytes
                done(due)
            if not self._sweep(pruned):
                return pruned
        if self._sweep(pruned):
            self._give_back()
        return pruned

    def _due(self, keep: Keep, look: sqlite3.Connection) -> Iterator[Due]:
        if keep.for_s is None and keep.size_bytes is None:
            return
        too_old = "" if keep.for_s is None else (self._now() - timedelta(seconds=keep.for_s)).isoformat()
        over = 0 if keep.size_bytes is None else self._used_bytes(look) - keep.size_bytes
        counted: set[str] = set()
        for ended_at, rollout_id, attempt in _ended(look, keep.unexported):
            is_old = ended_at < too_old
            if not is_old and over <= 0:
                return
            size = _number(look, _STORED_BYTES, (rollout_id, attempt))
            # One that another attempt names too stays: the next pass finds that there was less to win here.
            names = {name for (name,) in look.execute(_NAMES, (rollout_id, attempt))} - counted
            size += sum(self._blobs.size(name) for name in names)
            counted |= names
            over -= size
            yield Due(rollout_id, attempt, DeleteReason.AGE if is_old else DeleteReason.SIZE, size)

    def _used_bytes(self, look: sqlite3.Connection) -> int:
        """What the store takes, less free pages and blobs that nothing names: those go by themselves."""
        pages = _number(look, "PRAGMA page_count") - _number(look, "PRAGMA freelist_count")
        wanted = (file.name for file in blob_files(self._directory) if _is_wanted(look, file.name))
        return pages * _number(look, "PRAGMA page_size") + sum(map(self._blobs.size, wanted))

    def _sweep(self, pruned: Pruned) -> bool:
        """Remove the records of all that is deleted; False if it was told to stop before the end."""
        while self._go_on():
            swept: Swept = self._transact(sweep)
            pruned.records += swept.records
            if swept.is_done:
                return True
        return False

    def tidy(self, pruned: Pruned) -> None:
        """Remove blobs that nothing names and nobody has asked for lately, and what killed writers left.

        Looks at every blob. Raises: StoreError, OSError.
        """
        now_s = self._now().timestamp()
        with contextlib.closing(open_readonly(self._directory / JOURNAL_FILE)) as look:
            for file in blob_files(self._directory):
                if not _is_wanted(look, file.name):
                    if not self._go_on():
                        return
                    pruned.blobs += self._blobs.remove_quiet(file.name, BLOB_QUIET_S, now_s) > 0
            for file in draft_files(self._directory):
                name = leaving_name(file)
                if name and _is_wanted(look, name):
                    # Its remover was killed before it could see that somebody had asked for it.
                    file.replace(file.with_name(name))
                elif file.exists() and now_s - file.stat().st_mtime > BLOB_QUIET_S:
                    file.unlink(missing_ok=True)

    def _give_back(self) -> None:
        """Give free pages back to the disk, a few at a time, where the file was made for that."""
        before = -1
        while self._go_on():
            left = self._transact(_vacuum_a_little)
            if left in (before, 0):
                return
            before = left


def _ended(look: sqlite3.Connection, unexported: Unexported) -> Iterator[tuple[str, str, int]]:
    """Closed attempts that may go: when they were closed, and what they are."""
    query = _ENDED if unexported is Unexported.DELETE else _ENDED_AND_LEFT
    last: tuple[str, int] = ("", 0)
    while page := look.execute(query, (*last, RolloutStatus.RUNNING.value)).fetchall():
        for ended_at, number, rollout_id, attempt in page:
            last = (ended_at, number)
            yield ended_at, rollout_id, attempt


def _number(connection: sqlite3.Connection, query: str, values: tuple[str | int, ...] = ()) -> int:
    return int(connection.execute(query, values).fetchone()[0])


def _is_wanted(connection: sqlite3.Connection, sha256: str) -> bool:
    """Whether anything in the journal names a blob: a record, or the store's own notes on its models."""
    if is_named(connection, sha256):
        return True
    return connection.execute("SELECT 1 FROM meta WHERE value = ? LIMIT 1", (sha256,)).fetchone() is not None


def _vacuum_a_little(connection: sqlite3.Connection) -> int:
    """Give back some of the free pages that are too many; returns how many of those are left."""
    free, pages = _number(connection, "PRAGMA freelist_count"), _number(connection, "PRAGMA page_count")
    spare = max(_SPARE_PAGES, pages // 10)
    if free > spare:
        connection.execute(f"PRAGMA incremental_vacuum({min(_VACUUM_PAGES, free - spare)})").fetchall()
        free = _number(connection, "PRAGMA freelist_count")
    return max(0, free - spare)
