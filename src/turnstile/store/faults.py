"""What went wrong with the database, in words that a person can act on."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from turnstile.errors import StoreError

_PRIMARY = 0xFF
"""SQLite's extended result codes carry the primary code in their lowest byte (sqlite.org/rescode.html)."""

_CAUSES = {
    sqlite3.SQLITE_FULL: ("the disk is full", "Free space there; the journal goes on by itself"),
    sqlite3.SQLITE_BUSY: ("another program holds it locked", "Close the program that has it open for writing"),
    sqlite3.SQLITE_LOCKED: ("another program holds it locked", "Close the program that has it open for writing"),
    sqlite3.SQLITE_READONLY: ("it cannot be written", "Make the directory and its files writable for this user"),
    sqlite3.SQLITE_PERM: ("access was denied", "Make the directory and its files accessible to this user"),
    sqlite3.SQLITE_CANTOPEN: ("it cannot be opened", "Check that the directory exists and this user may use it"),
    sqlite3.SQLITE_IOERR: ("the disk refused a read or a write", "Check the disk, its free space and its quota"),
    sqlite3.SQLITE_CORRUPT: (
        "it is damaged",
        "Save what is left of it in a new store: `turnstile store salvage STORE NEW`",
    ),
    sqlite3.SQLITE_NOTADB: ("it is no journal", "Name the directory that `turnstile serve --store` was given"),
}


def fault(error: sqlite3.Error, file: Path, doing: str) -> StoreError:
    """A database's error as a `StoreError`.

    Args:
        error: what sqlite3 raised.
        file: the database.
        doing: what was being done, such as `write a record`.
    """
    cause, remedy = _CAUSES.get(_code(error), ("SQLite refused", "Check the disk and the directory"))
    return StoreError(f"Cannot {doing} in `{file}`: {cause} ({error})", remedy)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite met bytes in the database that cannot be."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _code(error: sqlite3.Error) -> int:
    """The primary result code; 0 where there is none."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & _PRIMARY
