"""A new store from what a damaged one still holds: every whole attempt as it was, what is left of others marked so."""

from __future__ import annotations

import contextlib
import enum
import os
import sqlite3
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import final

import msgspec

from turnstile.errors import CallerError, StoreError
from turnstile.history.forest import Forest
from turnstile.journal import (
    CallFailed,
    CallStarted,
    Record,
    RolloutFinished,
    RolloutOpened,
    RolloutStatus,
    TurnCommitted,
    decode,
    encode,
)
from turnstile.reasons import EndReason, FailReason
from turnstile.store import Blobs
from turnstile.store.beside import committed
from turnstile.store.blob_names import named_blobs
from turnstile.store.blobs import blob_files
from turnstile.store.faults import fault
from turnstile.store.remains import AttemptKey, Remains, remains
from turnstile.store.schema import JOURNAL_FILE, open_writable
from turnstile.store.tables import Row, insert, set_meta

_WITHHELD = '{"trainable":false,"mask_reasons":["store_damaged"]}'
_TOMBSTONE = f"INSERT OR IGNORE INTO tombstones VALUES ({', '.join('?' * 14)})"
_EXPORT = """INSERT OR IGNORE INTO exports SELECT ?, ?, ?, ? WHERE EXISTS
    (SELECT 1 FROM rollouts WHERE rollout_id = ? AND attempt = ?)"""


class Outcome(enum.StrEnum):
    """What became of something in a damaged store."""

    WHOLE = "whole"
    CUT = "cut"
    """A part of it is kept; it is closed, and withheld from training."""
    LOST = "lost"


class Salvaged(msgspec.Struct, frozen=True):
    """One thing that was not kept as it was."""

    outcome: Outcome
    place: str
    """A rollout as `ID#ATTEMPT`, a blob's hash, or `journal`."""
    message: str

    def __str__(self) -> str:
        return f"{self.outcome} {self.place} {self.message}"


class Salvage(msgspec.Struct):
    """How much was kept."""

    whole: int = 0
    cut: int = 0
    lost: int = 0
    blobs: int = 0
    blobs_lost: int = 0
    holes: int = 0
    """Commits and pages that are gone, of which it is not known what they held."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is lost."""
        return not (self.cut or self.lost or self.blobs_lost or self.holes)


class _Story(msgspec.Struct):
    """The records of one attempt, as far as they follow from each other."""

    kept: list[tuple[Record, bytes]] = []
    forest: Forest = msgspec.field(default_factory=Forest)
    broken: str = ""
    """Why the rest does not follow; empty: there is no rest."""


@final
class Salvager:
    """Reads one store and makes another."""

    def __init__(
        self, source: Path, target: Path, now: Callable[[], datetime], tell: Callable[[Salvaged], None]
    ) -> None:
        """Save what there is.

        Args:
            source: directory of the damaged store, of which nothing is changed.
            target: directory that is made; it may be there already if it is empty.
            now: the clock.
            tell: told of everything that is not kept as it was.
        """
        self._source = source
        self._target = target
        self._now = now
        self._tell = tell
        self._named: set[str] = set()
        self._done = Salvage()

    def run(self) -> Salvage:
        """Make the new store. Raises: CallerError if there is something in `target`; StoreError."""
        if self._target.exists() and (not self._target.is_dir() or any(self._target.iterdir())):
            raise CallerError(f"`{self._target}` is there already and is not empty", "Give a directory of its own")
        found = remains(self._source)
        draft = self._target / f"{JOURNAL_FILE}.partial"
        try:
            self._target.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(open_writable(draft, 1.0)) as connection:
                self._fill(connection, found)
            self._copy_blobs(found)
            os.replace(draft, self._target / JOURNAL_FILE)
        except sqlite3.Error as error:
            raise fault(error, draft, "write what was saved") from error
        except OSError as error:
            raise StoreError(f"Cannot write to `{self._target}`: {error}", "Free space there and try again") from error
        return self._done

    def _fill(self, connection: sqlite3.Connection, found: Remains) -> None:
        if found.torn_commits:
            behind = f"{found.torn_commits} commits stand behind damage in the write-ahead log"
            self._done.holes += found.torn_commits
            self._tell(Salvaged(Outcome.LOST, "journal", f"{behind}; what they held is not known"))
        if found.pages_gone:
            self._done.holes += found.pages_gone
            self._tell(Salvaged(Outcome.LOST, "journal", f"{found.pages_gone} pages at the end of the file are gone"))
        for key in found.attempts():
            with committed(connection):
                self._attempt(connection, key, found)
        with committed(connection):
            for row in found.tombstones.values():
                connection.execute(_TOMBSTONE, (*row[:1], *row[1:13], 1))
            for row in found.exports:
                connection.execute(_EXPORT, (*row, *row[:2]))
            for name, value in found.metas.items():
                set_meta(connection, name, value)

    def _attempt(self, connection: sqlite3.Connection, key: AttemptKey, found: Remains) -> None:
        place = f"{key[0]}#{key[1]}"
        story = _story(key, found)
        if story.forest.opened is None:
            self._done.lost += 1
            there = len(found.records.get(key, ()))
            self._tell(Salvaged(Outcome.LOST, place, f"its opening is gone; {there} records without it are not kept"))
            return
        missing = _missing(key, found, story)
        kept = story.kept if not missing else _closed(story, self._now())
        for record, body in kept:
            insert(connection, Row(record, body, key[1]))
            self._named |= named_blobs(record)
        if missing:
            self._done.cut += 1
            self._tell(Salvaged(Outcome.CUT, place, f"{len(story.kept)} records are kept; {missing}"))
        else:
            self._done.whole += 1

    def _copy_blobs(self, found: Remains) -> None:
        old, new = Blobs(self._source), Blobs(self._target)
        for file in blob_files(self._source):
            try:
                new.put(old.get(file.name))
                self._done.blobs += 1
            except StoreError as damaged:
                self._done.blobs_lost += 1
                self._tell(Salvaged(Outcome.LOST, file.name, damaged.problem))
        models = {value for name, value in found.metas.items() if name.startswith("model_files:")}
        for sha256 in sorted(self._named | models):
            if not new.has(sha256) and not old.has(sha256):
                self._done.blobs_lost += 1
                self._tell(Salvaged(Outcome.LOST, sha256, "a record names this blob, but it is not there"))


def _story(key: AttemptKey, found: Remains) -> _Story:
    story = _Story()
    bodies = [found.records[key][number] for number in sorted(found.records.get(key, ()))]
    for body in _opened(key, found, bodies):
        try:
            record = decode(body)
            if record.rollout_id != key[0]:
                raise ValueError(f"it is of rollout `{record.rollout_id}`")
            story.forest.check(record)
            story.forest.apply(record)
        except (StoreError, ValueError, TypeError, LookupError, msgspec.DecodeError) as wrong:
            story.broken = f"what follows cannot be put behind them: {wrong}"
            break
        story.kept.append((record, body))
    return story


def _opened(key: AttemptKey, found: Remains, bodies: list[bytes]) -> list[bytes]:
    """The records with an opening in front, made anew from the listing where it is gone."""
    row = found.summaries.get(key)
    if row is None or (bodies and b"rollout_opened" in bodies[0][:40]):
        return bodies
    _, name, attempt, group_id, task_id, sample_index, parent, agent, _, opened_at, *_ = row
    said = {"rollout_id": name, "attempt": attempt, "opened_at": opened_at, "group_id": group_id, "task_id": task_id}
    more = {"sample_index": sample_index, "parent_rollout_id": parent, "agent_name": agent, "type": "rollout_opened"}
    try:
        return [encode(msgspec.convert(said | more, RolloutOpened)), *bodies]
    except msgspec.ValidationError:
        return bodies


def _missing(key: AttemptKey, found: Remains, story: _Story) -> str:
    """What is not there of an attempt, in words; empty if it is whole."""
    gone = sorted(found.expected.get(key, set()) - found.records.get(key, {}).keys())
    if gone:
        return f"{len(gone)} are gone ({', '.join(map(str, gone[:5]))}{', ...' if len(gone) > 5 else ''})"
    if story.broken:
        return story.broken
    row = found.summaries.get(key)
    if row is None and key not in found.expected:
        return "nothing says how many there were"
    if row is None:
        return ""
    there = (
        story.forest.finished.status.value if story.forest.finished else RolloutStatus.RUNNING.value,
        *(sum(isinstance(record, kind) for record, _ in story.kept) for kind in (CallStarted, TurnCommitted)),
    )
    listed = (row[8], row[11], row[12])
    return "" if there == listed else f"the listing has (status, calls, turns) {listed}, they have {there}"


def _closed(story: _Story, now: datetime) -> list[tuple[Record, bytes]]:
    """The records of an attempt that is not whole, with an end that says so."""
    assert story.forest.opened is not None
    rollout_id = story.forest.opened.rollout_id
    ends: list[Record] = [
        CallFailed(rollout_id, started.call_id, now, FailReason.INTERRUPTED, "What it answered is lost")
        for started in story.forest.open_calls
    ]
    ends.append(
        RolloutFinished(rollout_id, now, RolloutStatus.ABORTED, metadata=_WITHHELD, reason=EndReason.STORE_DAMAGED)
    )
    kept = [each for each in story.kept if not isinstance(each[0], RolloutFinished)]
    return [*kept, *((record, encode(record)) for record in ends)]
