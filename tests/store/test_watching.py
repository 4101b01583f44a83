"""What a journal tells of how it does."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from turnstile.errors import StoreError
from turnstile.journal import CallFailed, Record, RolloutOpened, encode
from turnstile.reasons import FailReason
from turnstile.store import Journal
from turnstile.store.watching import Commit, Unwatched

AT = datetime(2026, 1, 1, tzinfo=UTC)
OPENED = RolloutOpened("r", 1, AT)
FAILED = CallFailed("r", "", AT, FailReason.REFUSED, "x")


class Watch:
    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.errors: list[StoreError] = []
        self.records: list[Record] = []

    def committed(self, commit: Commit) -> None:
        self.commits.append(commit)

    def failed(self, error: StoreError) -> None:
        self.errors.append(error)

    def appended(self, record: Record, waited_s: float) -> None:
        assert waited_s > 0
        self.records.append(record)


async def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_each_append_and_each_transaction_is_told_with_what_it_wrote_and_took(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    journal.watch = watch = Watch()
    await journal.append(OPENED)
    await asyncio.gather(*(journal.append(FAILED) for _ in range(20)))
    await journal.set_meta("a", "b")
    journal.close()
    assert watch.records == [OPENED, *[FAILED] * 20]
    assert sum(commit.appends for commit in watch.commits) == 22
    assert sum(commit.stored_bytes for commit in watch.commits) == len(encode(OPENED)) + 20 * len(encode(FAILED))
    assert all(commit.took_s >= commit.synced_s > 0 for commit in watch.commits)
    assert (watch.errors, journal.waiting) == ([], 0)


async def test_a_transaction_that_cannot_be_written_is_told_with_its_error(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path, patience_s=0.01)
    journal.watch = watch = Watch()
    await journal.append(OPENED)
    other = sqlite3.connect(tmp_path / "journal.sqlite3")
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await journal.append(FAILED)
    await until(lambda: watch.errors)
    other.close()
    await journal.append(FAILED)
    journal.close()
    assert ([error.code for error in watch.errors], watch.records) == (["store_error"], [OPENED, FAILED])


async def test_a_journal_that_nobody_watches_does_the_same(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path)
    assert isinstance(journal.watch, Unwatched)
    assert await journal.append(OPENED) == len(encode(OPENED))
    journal.watch.failed(StoreError("x", "y"))
    journal.close()
