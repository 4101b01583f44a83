"""The journal's tables, how a file gets them, and how it is opened.

A store is a directory: `journal.sqlite3` (and SQLite's own `-wal` and `-shm` beside it), `blobs/`, `lock`.
`records` is the truth. `rollouts` is a summary of it, written in the same transaction, so that a listing never
has to read records. `exports` says which attempts left and where to, `tombstones` which are gone, `blob_names` which
blobs an attempt names.
"""

from __future__ import annotations

import contextlib
import enum
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from turnstile.errors import StoreError
from turnstile.store.blob_names import note_blob_names
from turnstile.store.faults import fault

JOURNAL_FILE = "journal.sqlite3"
LOCK_FILE = "lock"
BLOBS_DIRECTORY = "blobs"

APPLICATION_ID = 0x54535431
"""`TST1` in SQLite's header: tells our file from any other database."""

Change: TypeAlias = str | Callable[[sqlite3.Connection], None]
"""A statement, or a function that fills what statements made."""

MIGRATIONS: tuple[tuple[Change, ...], ...] = (
    (
        """CREATE TABLE records (
            seq INTEGER PRIMARY KEY,
            rollout_id TEXT NOT NULL,
            attempt INTEGER NOT NULL,
            kind TEXT NOT NULL,
            call_id TEXT NOT NULL,
            crc32 INTEGER NOT NULL,
            body BLOB NOT NULL
        ) STRICT""",
        "CREATE INDEX records_of_attempt ON records (rollout_id, attempt, seq)",
        """CREATE TABLE rollouts (
            number INTEGER PRIMARY KEY,
            rollout_id TEXT NOT NULL,
            attempt INTEGER NOT NULL,
            group_id TEXT,
            task_id TEXT,
            sample_index INTEGER,
            parent_rollout_id TEXT,
            agent_name TEXT,
            status TEXT NOT NULL,
            opened_at TEXT NOT NULL,
            finished_at TEXT,
            calls INTEGER NOT NULL DEFAULT 0,
            turns INTEGER NOT NULL DEFAULT 0,
            failed_calls INTEGER NOT NULL DEFAULT 0,
            forks INTEGER NOT NULL DEFAULT 0,
            sampled_tokens INTEGER NOT NULL DEFAULT 0,
            reward REAL,
            UNIQUE (rollout_id, attempt)
        ) STRICT""",
        "CREATE INDEX rollouts_of_group ON rollouts (group_id, number)",
        "CREATE INDEX rollouts_of_task ON rollouts (task_id, number)",
        "CREATE INDEX rollouts_by_status ON rollouts (status, number)",
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    ),
    (
        """CREATE TABLE exports (
            rollout_id TEXT NOT NULL,
            attempt INTEGER NOT NULL,
            destination TEXT NOT NULL,
            exported_at TEXT NOT NULL,
            PRIMARY KEY (rollout_id, attempt, destination)
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE tombstones (
            number INTEGER PRIMARY KEY,
            rollout_id TEXT NOT NULL,
            attempt INTEGER NOT NULL,
            status TEXT NOT NULL,
            opened_at TEXT NOT NULL,
            finished_at TEXT,
            deleted_at TEXT NOT NULL,
            reason TEXT NOT NULL,
            exported_at TEXT,
            exported_to TEXT,
            calls INTEGER NOT NULL,
            turns INTEGER NOT NULL,
            sampled_tokens INTEGER NOT NULL,
            swept INTEGER NOT NULL DEFAULT 0,
            UNIQUE (rollout_id, attempt)
        ) STRICT""",
        """CREATE TABLE blob_names (
            sha256 TEXT NOT NULL,
            rollout_id TEXT NOT NULL,
            attempt INTEGER NOT NULL,
            PRIMARY KEY (sha256, rollout_id, attempt)
        ) STRICT, WITHOUT ROWID""",
        "CREATE INDEX tombstones_unswept ON tombstones (number) WHERE swept = 0",
        "CREATE INDEX blob_names_of_attempt ON blob_names (rollout_id, attempt)",
        "CREATE INDEX rollouts_by_end ON rollouts (finished_at, number)",
        note_blob_names,
    ),
)
"""Step N takes a file of version N to version N + 1. A released step never changes.

A step adds tables and never columns: a reader gives an older file the tables that it lacks, empty (`_stand_in`).
"""

VERSION = len(MIGRATIONS)
MIGRATED = "migrated:"
"""Begins the keys of `meta` that say when a file was brought to a version, and from which."""
_NOTE_MIGRATION = "INSERT INTO meta (key, value) VALUES (?, strftime('%Y-%m-%dT%H:%M:%SZ', 'now') || ?)"


class Durability(enum.StrEnum):
    """What an append that returned survives (docs/durability.md)."""

    PROCESS = "process"
    """The end of the process, kill -9 included. With the machine the last ones may go, in order and none in part."""
    POWER = "power"
    """The end of the machine too: each commit waits for the disk."""


_SYNCHRONOUS = {Durability.PROCESS: "NORMAL", Durability.POWER: "FULL"}
"""What each means in WAL mode (sqlite.org/pragma.html#pragma_synchronous)."""


def open_writable(file: Path, patience_s: float, durability: Durability = Durability.PROCESS) -> sqlite3.Connection:
    """The one writing connection, its tables made or brought up to date.

    It may be used by any one thread at a time.

    Raises: StoreError if the file is not ours, of a newer version, damaged, or cannot be written.
    """
    try:
        connection = sqlite3.connect(file, timeout=patience_s, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise fault(error, file, "open the journal") from error
    try:
        _refuse_foreign(connection, file)
        # Only a file without tables takes it; others take it with `turnstile store compact`.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
        connection.execute("PRAGMA journal_size_limit = 67108864")
        _refuse_cut(connection, file)
        _migrate(connection)
    except sqlite3.Error as error:
        connection.close()
        raise fault(error, file, "open the journal") from error
    except StoreError:
        connection.close()
        raise
    return connection


def open_readonly(file: Path) -> sqlite3.Connection:
    """A connection that cannot write, for any process, also while another one writes.

    A file of an older version is read as it is: what it cannot say yet is said to be empty.

    Raises: StoreError if there is no journal, or it is of a newer version, damaged or not readable.
    """
    if not file.is_file():
        what = "journal in" if file.parent.is_dir() else "directory"
        raise StoreError(
            f"There is no {what} `{file.parent}`", "Name the directory that `turnstile serve --store` was given"
        )
    if not file.stat().st_size:
        # SQLite deletes the log of an empty database, also where it may only read: it may be all that is left.
        raise _empty(file)
    try:
        connection = sqlite3.connect(_readonly_uri(file), uri=True, check_same_thread=False)
    except sqlite3.Error as error:
        raise fault(error, file, "open the journal") from error
    try:
        _refuse_foreign(connection, file)
        version = version_of(connection)
        if version:
            _stand_in(connection, version)
    except sqlite3.Error as error:
        connection.close()
        raise fault(error, file, "open the journal") from error
    except StoreError:
        connection.close()
        raise
    if not version:
        connection.close()
        raise _empty(file)
    return connection


def _empty(file: Path) -> StoreError:
    return StoreError(
        f"The journal `{file}` is empty",
        "Start `turnstile serve` on it once if it never held anything, else restore it from a copy",
        code="journal_empty",
    )


def _stand_in(connection: sqlite3.Connection, version: int) -> None:
    """Give a connection the tables that an older file lacks, empty and for itself alone."""
    connection.execute("PRAGMA temp_store = MEMORY")
    for step in MIGRATIONS[version:]:
        for change in step:
            if isinstance(change, str) and change.startswith("CREATE TABLE "):
                connection.execute(change.replace("CREATE TABLE ", "CREATE TEMP TABLE ", 1))


def _readonly_uri(file: Path) -> str:
    uri = f"{file.absolute().as_uri()}?mode=ro"
    # Reading in WAL mode makes files beside the database. Where that cannot be, nobody writes to it either; and
    # without a write-ahead log the file itself is all there is (sqlite.org/wal.html, "Read-Only Databases").
    is_archive = (
        not os.access(file.parent, os.W_OK, effective_ids=True) and not file.with_name(f"{file.name}-wal").exists()
    )
    return f"{uri}&immutable=1" if is_archive else uri


def version_of(connection: sqlite3.Connection) -> int:
    """The version of an open journal; 0: it has no tables yet. Raises: sqlite3.Error."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _refuse_foreign(connection: sqlite3.Connection, file: Path) -> None:
    owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
    tables = int(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    if owner != APPLICATION_ID and (owner or tables):
        raise StoreError(f"The database `{file}` is no journal of Turnstile's", "Give the store another directory")
    version = version_of(connection)
    if version > VERSION:
        raise StoreError(
            f"The journal `{file}` has version {version}, newer than the {VERSION} that this Turnstile knows",
            "Upgrade Turnstile, or give it another directory",
            code="store_too_new",
        )


def _refuse_cut(connection: sqlite3.Connection, file: Path) -> None:
    """See that a file that ends in the middle of a page has lost nothing by it.

    SQLite fills that page with zeros and goes on; what is written behind it then damages what is whole.
    """
    if file.stat().st_size % int(connection.execute("PRAGMA page_size").fetchone()[0]) == 0:
        return
    # The log may have the whole page: then a checkpoint was cut short, and nothing is lost.
    if (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
        raise StoreError(
            f"The journal `{file}` was cut in the middle of a page: {found}",
            "Save what is left of it in a new store: `turnstile store salvage STORE NEW`",
            code="journal_damaged",
        )


def _migrate(connection: sqlite3.Connection) -> None:
    if version_of(connection) == VERSION:
        return
    connection.execute("BEGIN EXCLUSIVE")
    try:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        before = version_of(connection)
        for step in MIGRATIONS[before:]:
            for change in step:
                if isinstance(change, str):
                    connection.execute(change)
                else:
                    change(connection)
        if before:
            connection.execute(_NOTE_MIGRATION, (f"{MIGRATED}{VERSION}", f" from version {before}"))
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
