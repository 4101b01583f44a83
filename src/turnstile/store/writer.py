"""The journal's writing half: one thread, one transaction for all that came in since the last one.

An append is answered only after its commit. No delay is added: the thread commits as soon as it is free, so one
caller waits for one commit, and a thousand callers share few of them (group commit).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import queue
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, final

from turnstile.errors import StoreError
from turnstile.journal import Record, encode
from turnstile.store.faults import fault
from turnstile.store.lock import StoreLock
from turnstile.store.losses import commits_in_log, incidents, log_is_gone, refuse_emptied
from turnstile.store.schema import JOURNAL_FILE, LOCK_FILE, Durability, open_writable
from turnstile.store.tables import Row, insert, set_meta
from turnstile.store.watching import Commit, JournalWatch, Unwatched

T = TypeVar("T")


@final
class _Append:
    """What one caller waits for: rows that are written together or not at all."""

    __slots__ = ("answer", "loop", "meta", "refusal", "rows")

    def __init__(self, rows: tuple[Row, ...], meta: tuple[tuple[str, str], ...] = ()) -> None:
        self.rows = rows
        self.meta = meta
        self.loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[None] = self.loop.create_future()
        self.refusal: StoreError | None = None

    @property
    def stored_bytes(self) -> int:
        """Of its records."""
        return sum(len(row.body) for row in self.rows)

    def write(self, connection: sqlite3.Connection) -> None:
        """Insert all rows; one that is refused takes back its own append and no other."""
        try:
            for row in self.rows:
                insert(connection, row)
            for key, value in self.meta:
                set_meta(connection, key, value)
        except StoreError as error:
            self.refusal = error
            connection.execute("ROLLBACK TO one")

    def settle(self) -> None:
        """Wake the caller; on the caller's own loop."""
        if self.refusal is None:
            self.answer.set_result(None)
        else:
            self.answer.set_exception(self.refusal)


@final
class _Change(Generic[T]):
    """A step that another thread waits for."""

    __slots__ = ("_found", "_step", "answer", "refusal")

    stored_bytes = 0
    """It brings no records."""

    def __init__(self, step: Callable[[sqlite3.Connection], T]) -> None:
        self.answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.refusal: StoreError | None = None
        self._step = step
        self._found: list[T] = []

    def write(self, connection: sqlite3.Connection) -> None:
        """Take the step; what it did is taken back if it refuses."""
        self._found.clear()
        try:
            self._found.append(self._step(connection))
        except StoreError as error:
            self.refusal = error
            connection.execute("ROLLBACK TO one")

    def settle(self) -> None:
        """Wake the caller."""
        if self.refusal is None:
            self.answer.set_result(self._found[0])
        else:
            self.answer.set_exception(self.refusal)


_Work: TypeAlias = _Append | _Change[Any]


@final
class Journal:
    """The writing end of a store; one a store, in one process.

    What an append that returned survives is said by its `Durability`. None is ever there in part or out of order.
    """

    def __init__(
        self, directory: Path, lock: StoreLock, patience_s: float, durability: Durability = Durability.PROCESS
    ) -> None:
        """Own a lock that is held already; `open` makes one."""
        self.directory = directory
        self.watch: JournalWatch = Unwatched()
        """Told how it does."""
        self._durability = durability
        self._file = directory / JOURNAL_FILE
        self._lock = lock
        self._patience_s = patience_s
        self._connection: sqlite3.Connection | None = None
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self.incidents: tuple[str, ...] = ()
        """What was lost before this opening, in sentences."""
        self._thread = threading.Thread(target=self._run, name="turnstile-journal", daemon=True)

    @classmethod
    def open(cls, directory: Path, patience_s: float = 5.0, durability: Durability = Durability.PROCESS) -> Journal:
        """Open the store in a directory, making both if they are not there.

        Args:
            directory: where the store is.
            patience_s: seconds to wait for another program that holds the database locked.
            durability: what an append survives.

        Raises: StoreError if another process writes to it, it is of a newer version, damaged, or not writable.
        """
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise StoreError(f"`{directory}` is a file", "Name a directory, or one that is yet to be made") from error
        except OSError as error:
            raise StoreError(
                f"Cannot make the store's directory `{directory}`: {error.strerror}",
                "Choose a directory that this user can write to",
            ) from error
        journal = cls(directory, StoreLock.acquire(directory / LOCK_FILE), patience_s, durability)
        try:
            refuse_emptied(directory)
            gone, ends = log_is_gone(directory, was_left=journal._lock.was_left), commits_in_log(directory)
            connection = journal._connection = open_writable(journal._file, patience_s, durability)
            journal.incidents = incidents(connection, gone, ends)
        except sqlite3.Error as error:
            journal._lock.release()
            raise fault(error, journal._file, "open the journal") from error
        except StoreError:
            journal._lock.release()
            raise
        journal._thread.start()
        return journal

    async def append(self, record: Record, attempt: int | None = None) -> int:
        """Make one record durable; returns after its commit. `attempt` None = the rollout's latest.

        Records become durable in the order of the calls. A caller that is cancelled while it waits is told only
        when the outcome is known, so that it can never hold a record for unwritten that is on its way to the disk.

        Returns: how many bytes the record takes in the journal.
        Raises: StoreError, and then the record is not in the journal; a later append may succeed.
            CancelledError, and then the record is in the journal all the same.
        """
        body = encode(record)
        began_s = time.perf_counter()
        await self._write(_Append((Row(record, body, attempt),)))
        self.watch.appended(record, time.perf_counter() - began_s)
        return len(body)

    async def append_all(self, records: Sequence[Record]) -> None:
        """Make several records durable, all of them or none; otherwise as `append`."""
        if records:
            await self._write(_Append(tuple(Row(record, encode(record)) for record in records)))

    async def set_meta(self, key: str, value: str) -> None:
        """Keep a fact about the store itself, replacing an older one; durable on return.

        Raises: StoreError, and then the older one still stands.
        """
        await self._write(_Append((), ((key, value),)))

    def change(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Take a short step inside a transaction of the writer's; blocks until it is committed, so never on a loop.

        Args:
            step: given the connection that writes; what it returns is returned. It raises StoreError to be taken back,
                else only sqlite3.Error, and keeps nothing outside the database.

        Raises: StoreError, and then nothing has changed.
        """
        change = _Change(step)
        self._hand_over(change)
        return change.answer.result()

    @property
    def waiting(self) -> int:
        """How many appends wait for the next transaction."""
        return self._waiting.qsize()

    def close(self) -> None:
        """Write what waits, then let the store go; blocks for one commit. A second call does nothing."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._waiting.put(None)
        self._thread.join()

    async def _write(self, append: _Append) -> None:
        self._hand_over(append)
        await _outcome(append.answer)

    def _hand_over(self, work: _Work) -> None:
        with self._gate:
            if self._closed:
                raise StoreError(f"The journal `{self._file}` is closed", "Start the server again")
            self._waiting.put(work)

    def _run(self) -> None:
        group: list[_Work] = []
        try:
            while True:
                group, more = self._next_group()
                self._commit(group)
                if not more:
                    break
        finally:
            # Reached with work left only by a fault of ours: nobody may wait for ever then.
            with self._gate:
                self._closed = True
            self._refuse(group)
            with contextlib.suppress(sqlite3.Error):
                self._disconnect()
            self._lock.release()

    def _next_group(self) -> tuple[list[_Work], bool]:
        """All that waits, at least one; False with the last of them."""
        group: list[_Work] = []
        item = self._waiting.get()
        while item is not None:
            group.append(item)
            try:
                item = self._waiting.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _commit(self, group: list[_Work]) -> None:
        if not group:
            return
        commit: Commit | None = None
        try:
            connection = self._connection or open_writable(self._file, self._patience_s, self._durability)
            self._connection = connection
            began_s = time.perf_counter()
            connection.execute("BEGIN IMMEDIATE")
            for work in group:
                connection.execute("SAVEPOINT one")
                work.write(connection)
                connection.execute("RELEASE one")
            written_s = time.perf_counter()
            connection.execute("COMMIT")
            ended_s = time.perf_counter()
            stored_bytes = sum(work.stored_bytes for work in group)
            commit = Commit(len(group), stored_bytes, ended_s - began_s, ended_s - written_s)
        except sqlite3.Error as error:
            self._fail(group, fault(error, self._file, "write a record"))
        except StoreError as error:
            self._fail(group, error)
        _wake(group)
        group.clear()
        if commit is not None:
            self.watch.committed(commit)

    def _fail(self, group: list[_Work], error: StoreError) -> None:
        """Nothing of the group was written; a fresh connection next time, in case the cause has gone by then."""
        with contextlib.suppress(sqlite3.Error):
            self._disconnect()
        for append in group:
            append.refusal = StoreError(error.problem, error.remedy, code=error.code)
        self.watch.failed(error)

    def _refuse(self, group: list[_Work]) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                item = self._waiting.get_nowait()
                if item is not None:
                    group.append(item)
        for append in group:
            append.refusal = StoreError(
                f"The journal's writer of `{self._file}` has ended", "Start the server again and report the traceback"
            )
        _wake(group)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


async def _outcome(answer: asyncio.Future[None]) -> None:
    cancelled: asyncio.CancelledError | None = None
    while not answer.done():
        try:
            await asyncio.shield(answer)
        except asyncio.CancelledError as late:
            cancelled = late
    answer.result()
    if cancelled is not None:
        raise cancelled


def _wake(group: list[_Work]) -> None:
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[_Append]] = defaultdict(list)
    for work in group:
        if isinstance(work, _Append):
            by_loop[work.loop].append(work)
        else:
            work.settle()
    for loop, appends in by_loop.items():
        # A loop that is closed has nobody left who waits.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle_all, appends)


def _settle_all(appends: list[_Append]) -> None:
    for append in appends:
        append.settle()
