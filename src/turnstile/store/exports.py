"""Marks that a closed attempt has left the store: when, and where to.

A mark licenses retention to delete, so it is written only when the attempt is where it says. One is a transaction of
a millisecond, which SQLite keeps apart from the server's own: it needs neither the server nor its lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from turnstile.journal import RolloutStatus
from turnstile.store.beside import beside, committed

_MARKS_A_COMMIT = 200
"""A server that waits for the database waits for no more than so many."""
_MARK = """INSERT INTO exports (rollout_id, attempt, destination, exported_at)
    SELECT rollout_id, attempt, ?, ? FROM rollouts WHERE rollout_id = ? AND attempt = ? AND status != ?
    ON CONFLICT DO UPDATE SET exported_at = max(exported_at, excluded.exported_at)"""


class ExportMark(msgspec.Struct, frozen=True):
    """One attempt that left."""

    rollout_id: str
    attempt: int
    destination: str
    """Where to, in words: a file, a trainer."""
    exported_at: datetime


def mark(connection: sqlite3.Connection, marks: Sequence[ExportMark]) -> int:
    """Write marks, inside the transaction that is open; an attempt that is open, or not there, gets none.

    Returns: how many were written. Raises: sqlite3.Error.
    """
    written = 0
    for each in marks:
        values = (each.destination, each.exported_at.isoformat(), each.rollout_id, each.attempt)
        written += connection.execute(_MARK, (*values, RolloutStatus.RUNNING.value)).rowcount
    return written


def mark_beside(directory: Path, marks: Sequence[ExportMark]) -> int:
    """Write marks into a store, also while a server writes to it.

    Returns: how many were written.
    Raises: StoreError if the store is of another version or cannot be written; some may be written then.
    """
    written = 0
    if marks:
        with beside(directory) as connection:
            for start in range(0, len(marks), _MARKS_A_COMMIT):
                with committed(connection):
                    written += mark(connection, marks[start : start + _MARKS_A_COMMIT])
    return written
