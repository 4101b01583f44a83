"""How an attempt leaves the store: a tombstone at once, then its records in small steps, then blobs without a name.

The tombstone is the truth: from the transaction that writes it the attempt is gone for every reader and listing, and
what a process that was killed left undone is swept by the next one. A blob goes only if no record names it and nobody
has asked for it lately: a call writes, or asks for, its images before its record names them.
"""

from __future__ import annotations

import enum
import sqlite3
from datetime import datetime

import msgspec

from turnstile.journal import RolloutStatus
from turnstile.reasons import DeleteReason
from turnstile.store.blob_names import UNKNOWN
from turnstile.store.tombstones import SELECT_TOMBSTONE, Tombstone, tombstone_of

SWEPT_RECORDS = 64
"""That one step removes at most."""
_SWEPT_BYTES = 1 << 20
"""Of records, after which a step ends; a single record may be longer."""

_MARKS = "FROM exports WHERE exports.rollout_id = rollouts.rollout_id AND exports.attempt = rollouts.attempt"
_OF_ID = "FROM rollouts WHERE rollout_id = ? AND (? IS NULL OR attempt = ?)"
_STANDING = f"SELECT attempt, status, EXISTS (SELECT 1 {_MARKS}) {_OF_ID} ORDER BY attempt"
_BURY = f"""INSERT INTO tombstones (number, rollout_id, attempt, status, opened_at, finished_at, deleted_at, reason,
    exported_at, exported_to, calls, turns, sampled_tokens)
    SELECT number, rollout_id, attempt, status, opened_at, finished_at, ?, ?, (SELECT max(exported_at) {_MARKS}),
    (SELECT destination {_MARKS} ORDER BY exported_at DESC LIMIT 1), calls, turns, sampled_tokens
    FROM rollouts WHERE rollout_id = ? AND attempt = ?"""
_OF_ATTEMPT = "WHERE rollout_id = ? AND attempt = ?"
_UNSWEPT = "SELECT rollout_id, attempt FROM tombstones WHERE swept = 0 ORDER BY number LIMIT 1"
_SWEEP_FROM = f"SELECT seq, length(body) FROM records {_OF_ATTEMPT} ORDER BY seq LIMIT {SWEPT_RECORDS}"


class Unexported(enum.StrEnum):
    """What becomes of an attempt that has not left the store."""

    KEEP = "keep"
    DELETE = "delete"


class Deletion(msgspec.Struct, frozen=True):
    """When and why attempts are deleted, and whether those go too that nobody has."""

    deleted_at: datetime
    reason: DeleteReason
    unexported: Unexported = Unexported.KEEP


class Standing(enum.StrEnum):
    """Why an attempt is not deleted."""

    OPEN = "open"
    UNEXPORTED = "unexported"


class Kept(msgspec.Struct, frozen=True):
    """An attempt that may not be deleted, so that nothing was."""

    attempt: int
    why: Standing


def delete(
    connection: sqlite3.Connection, rollout_id: str, attempt: int | None, deletion: Deletion
) -> tuple[Tombstone, ...] | Kept:
    """Delete one attempt of a rollout, or all of them, inside the transaction that is open.

    Args:
        connection: that writes.
        rollout_id: whose.
        attempt: its number; None = all.
        deletion: when, why, and what if an attempt has not left.

    Returns: the tombstones, none if there was no such attempt; or the attempt because of which nothing is deleted.
    Raises: sqlite3.Error.
    """
    found = connection.execute(_STANDING, (rollout_id, attempt, attempt)).fetchall()
    for number, status, is_exported in found:
        if status == RolloutStatus.RUNNING:
            return Kept(number, Standing.OPEN)
        if not is_exported and deletion.unexported is Unexported.KEEP:
            return Kept(number, Standing.UNEXPORTED)
    return tuple(_bury(connection, (rollout_id, number), deletion) for number, _, _ in found)


def _bury(connection: sqlite3.Connection, key: tuple[str, int], deletion: Deletion) -> Tombstone:
    connection.execute(_BURY, (deletion.deleted_at.isoformat(), deletion.reason.value, *key))
    connection.execute(f"DELETE FROM rollouts {_OF_ATTEMPT}", key)
    connection.execute(f"DELETE FROM exports {_OF_ATTEMPT}", key)
    return tombstone_of(connection.execute(f"{SELECT_TOMBSTONE} {_OF_ATTEMPT}", key).fetchone())


class Swept(msgspec.Struct, frozen=True):
    """What one step of sweeping did."""

    records: int
    blobs: tuple[str, ...]
    """Hashes of blobs that an attempt had named and nothing names now."""
    is_done: bool
    """Whether nothing is left to sweep."""


def sweep(connection: sqlite3.Connection) -> Swept:
    """Remove a few records of a deleted attempt, inside the transaction that is open. Raises: sqlite3.Error."""
    key = connection.execute(_UNSWEPT).fetchone()
    if key is None:
        return Swept(0, (), is_done=True)
    last, total, count = 0, 0, 0
    for seq, size in connection.execute(_SWEEP_FROM, key).fetchall():
        last, total, count = seq, total + size, count + 1
        if total >= _SWEPT_BYTES:
            break
    if count:
        connection.execute(f"DELETE FROM records {_OF_ATTEMPT} AND seq <= ?", (*key, last))
        return Swept(count, (), is_done=False)
    names = [name for (name,) in connection.execute(f"SELECT sha256 FROM blob_names {_OF_ATTEMPT}", key)]
    connection.execute(f"DELETE FROM blob_names {_OF_ATTEMPT}", key)
    connection.execute(f"UPDATE tombstones SET swept = 1 {_OF_ATTEMPT}", key)
    return Swept(0, tuple(name for name in names if name != UNKNOWN and not is_named(connection, name)), is_done=False)


def is_named(connection: sqlite3.Connection, sha256: str) -> bool:
    """Whether a record names a blob, or may: one that cannot be read may name any. Raises: sqlite3.Error."""
    query = "SELECT 1 FROM blob_names WHERE sha256 IN (?, ?) LIMIT 1"
    return connection.execute(query, (sha256, UNKNOWN)).fetchone() is not None
