"""Which blobs an attempt names, so that one which nobody names any more is found without reading every record."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import msgspec

from turnstile.conversation import Message
from turnstile.journal import CallStarted, Record

UNKNOWN = ""
"""Stands for the names in a record that cannot be read: while there is one, no blob is known to be unwanted."""

_KEEP = "INSERT OR IGNORE INTO blob_names (sha256, rollout_id, attempt) VALUES (?, ?, ?)"
_STARTED = "SELECT rollout_id, attempt, body FROM records WHERE kind = 'call_started'"


class _Named(msgspec.Struct, frozen=True, tag="call_started"):
    """The fields of a `CallStarted` that name blobs; the others are passed over unread."""

    new_M: tuple[Message, ...]
    echoed: Message | None = None


_decoder = msgspec.msgpack.Decoder(_Named)


def named_blobs(record: Record) -> frozenset[str]:
    """The hashes of the blobs that a record names."""
    return _named(record.new_M, record.echoed) if isinstance(record, CallStarted) else frozenset()


def keep_names(connection: sqlite3.Connection, names: Iterable[str], key: tuple[str, int]) -> None:
    """Note the blobs that an attempt names, inside the transaction that is open. Raises: sqlite3.Error."""
    for name in names:
        connection.execute(_KEEP, (name, *key))


def note_blob_names(connection: sqlite3.Connection) -> None:
    """Note the blobs that all records of a journal name, inside the transaction that is open.

    A record that is damaged names `UNKNOWN`. Raises: sqlite3.Error.
    """
    for rollout_id, attempt, body in connection.execute(_STARTED):
        try:
            found = _decoder.decode(body)
            names = _named(found.new_M, found.echoed)
        except (msgspec.DecodeError, ValueError, TypeError):
            names = frozenset({UNKNOWN})
        keep_names(connection, names, (rollout_id, attempt))


def _named(messages: tuple[Message, ...], echoed: Message | None) -> frozenset[str]:
    return frozenset(image.sha256 for each in (*messages, *((echoed,) if echoed else ())) for image in each.images)
