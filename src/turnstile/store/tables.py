"""How one record changes the tables."""

from __future__ import annotations

import sqlite3
import zlib
from typing import assert_never

import msgspec

from turnstile.errors import StoreError
from turnstile.generation import Forked, History, Rerendered
from turnstile.journal import (
    AnswerResumed,
    AnswerUndelivered,
    CallFailed,
    CallJoined,
    CallRejected,
    CallStarted,
    Record,
    RolloutFinished,
    RolloutOpened,
    RolloutStatus,
    TurnCommitted,
)
from turnstile.store.blob_names import keep_names, named_blobs

_INSERT_RECORD = "INSERT INTO records (rollout_id, attempt, kind, call_id, crc32, body) VALUES (?, ?, ?, ?, ?, ?)"
_NEXT_NUMBER = """(SELECT 1 + max(coalesce((SELECT max(number) FROM rollouts), 0),
    coalesce((SELECT max(number) FROM tombstones), 0)))"""
"""A number is never given twice, also where the attempt that had it is deleted: listings go on from numbers."""
_INSERT_ROLLOUT = f"""INSERT INTO rollouts (number, rollout_id, attempt, group_id, task_id, sample_index,
    parent_rollout_id, agent_name, status, opened_at) VALUES ({_NEXT_NUMBER}, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_LATEST_ATTEMPT = "SELECT max(attempt) FROM rollouts WHERE rollout_id = ?"
_LATEST_DELETED = "SELECT max(attempt) FROM tombstones WHERE rollout_id = ?"
_IS_KEPT = "SELECT 1 FROM rollouts WHERE rollout_id = ? AND attempt = ?"
_SET_META = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


class Row(msgspec.Struct, frozen=True):
    """A record and its form on disk."""

    record: Record
    body: bytes
    attempt: int | None = None
    """The attempt that it belongs to; None = the latest."""


def kind_of(record: Record) -> str:
    """The record's word in the `kind` column, such as `call_started`."""
    return str(type(record).__struct_config__.tag)


def checksum(body: bytes) -> int:
    """CRC-32 of a stored body. SQLite checks the shape of its pages, not what is in them."""
    return zlib.crc32(body)


def latest_attempt(connection: sqlite3.Connection, rollout_id: str) -> int:
    """The number of a rollout's latest attempt that is kept; 0 if there is none."""
    return int(connection.execute(_LATEST_ATTEMPT, (rollout_id,)).fetchone()[0] or 0)


def latest_deleted(connection: sqlite3.Connection, rollout_id: str) -> int:
    """The number of a rollout's latest attempt that was deleted; 0 if none was."""
    return int(connection.execute(_LATEST_DELETED, (rollout_id,)).fetchone()[0] or 0)


def insert(connection: sqlite3.Connection, row: Row) -> None:
    """Write one record and its effect on the summary, inside the transaction that is open.

    Nothing is written if the record is refused.
    Raises: StoreError for a record of a rollout that was never opened, or an attempt that was; sqlite3.Error.
    """
    attempt = _attempt(connection, row)
    key = (row.record.rollout_id, attempt)
    call_id = _call_id(row.record)
    connection.execute(_INSERT_RECORD, (*key, kind_of(row.record), call_id, checksum(row.body), row.body))
    keep_names(connection, named_blobs(row.record), key)
    _summarise(connection, row.record, key)


def set_meta(connection: sqlite3.Connection, key: str, value: str) -> None:
    """Write one entry of the store's own notes, inside the transaction that is open. Raises: sqlite3.Error."""
    connection.execute(_SET_META, (key, value))


def _attempt(connection: sqlite3.Connection, row: Row) -> int:
    record = row.record
    latest = latest_attempt(connection, record.rollout_id)
    match record:
        case RolloutOpened():
            latest = max(latest, latest_deleted(connection, record.rollout_id))
            if record.attempt <= latest:
                raise StoreError(
                    f"Attempt {record.attempt} of rollout `{record.rollout_id}` is already in the journal",
                    f"Open attempt {latest + 1}",
                    code="attempt_exists",
                )
            return record.attempt
        case _:
            # What is left of a call may come when the next attempt is open; it belongs to the call's own attempt.
            return _kept(connection, record.rollout_id, row.attempt or latest)


def _kept(connection: sqlite3.Connection, rollout_id: str, attempt: int) -> int:
    """The attempt, which may be written to. Raises: StoreError if it is not there."""
    if connection.execute(_IS_KEPT, (rollout_id, attempt)).fetchone():
        return attempt
    if latest_deleted(connection, rollout_id) >= attempt > 0:
        raise StoreError(
            f"Attempt {attempt} of rollout `{rollout_id}` was deleted", "Open its next attempt", code="rollout_deleted"
        )
    raise StoreError(
        f"Rollout `{rollout_id}` has a record but was never opened", "Open the rollout first", code="rollout_unknown"
    )


def _call_id(record: Record) -> str:
    match record:
        case CallStarted() | CallJoined() | TurnCommitted() | CallFailed() | AnswerResumed() | AnswerUndelivered():
            return record.call_id
        case RolloutOpened() | RolloutFinished() | CallRejected():
            return ""
        case _:
            assert_never(record)


def _summarise(connection: sqlite3.Connection, record: Record, key: tuple[str, int]) -> None:
    match record:
        case RolloutOpened():
            _open(connection, record)
        case CallStarted():
            _add(connection, key, "calls = calls + 1, forks = forks + ?", (_lost_prefixes(record.history),))
        case TurnCommitted():
            sampled = sum(len(choice.ids_S) for choice in record.choices)
            _add(connection, key, "turns = turns + 1, sampled_tokens = sampled_tokens + ?", (sampled,))
        case CallFailed():
            _add(connection, key, "failed_calls = failed_calls + 1", ())
        case RolloutFinished():
            values = (record.status.value, record.finished_at.isoformat(), record.reward)
            _add(connection, key, "status = ?, finished_at = ?, reward = ?", values)
        case CallJoined() | AnswerResumed() | AnswerUndelivered() | CallRejected():
            pass
        case _:
            assert_never(record)


def _open(connection: sqlite3.Connection, opened: RolloutOpened) -> None:
    values = (
        opened.rollout_id,
        opened.attempt,
        opened.group_id,
        opened.task_id,
        opened.sample_index,
        opened.parent_rollout_id,
        opened.agent_name,
        RolloutStatus.RUNNING.value,
        opened.opened_at.isoformat(),
    )
    connection.execute(_INSERT_ROLLOUT, values)


def _add(
    connection: sqlite3.Connection, key: tuple[str, int], changes: str, values: tuple[str | int | float | None, ...]
) -> None:
    statement = f"UPDATE rollouts SET {changes} WHERE rollout_id = ? AND attempt = ?"
    connection.execute(statement, (*values, *key))


def _lost_prefixes(history: History) -> int:
    return 1 if isinstance(history, Forked | Rerendered) else 0
