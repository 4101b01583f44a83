"""Short changes to a store by a process that is not its server, which may be running meanwhile.

The server's lock says who appends records. What is changed here are marks and tombstones, each in a transaction of
milliseconds that SQLite keeps apart from the server's; a server waits for one as it waits for a slow disk.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path

from turnstile.errors import StoreError
from turnstile.store.faults import fault
from turnstile.store.schema import JOURNAL_FILE, VERSION, open_readonly, version_of

_PATIENCE_S = 30.0


@contextlib.contextmanager
def beside(directory: Path) -> Generator[sqlite3.Connection]:
    """A connection for short transactions; it brings nothing up to date.

    Raises: StoreError if there is no journal, it is of another version, damaged or cannot be written.
    """
    file = directory / JOURNAL_FILE
    # Closed last, and it cannot write: so the write-ahead log stays for the server, which alone ends it.
    with contextlib.closing(open_readonly(file)) as reading:
        try:
            version = version_of(reading)
            if version != VERSION:
                raise StoreError(
                    f"The journal `{file}` has version {version}, and this Turnstile writes version {VERSION}",
                    "Start this version's `turnstile serve` on it once, which brings it up to date",
                    code="store_too_old",
                )
            with contextlib.closing(sqlite3.connect(file, timeout=_PATIENCE_S, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise fault(error, file, "change the store") from error


@contextlib.contextmanager
def committed(connection: sqlite3.Connection) -> Generator[None]:
    """A transaction around the block, taken back if the block raises."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
