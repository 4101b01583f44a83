"""What is done to a whole store: a copy of a live one, and giving space back."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from turnstile.errors import CallerError, StoreError
from turnstile.store.blobs import blob_files, draft_files
from turnstile.store.faults import fault
from turnstile.store.lock import StoreLock
from turnstile.store.schema import BLOBS_DIRECTORY, JOURNAL_FILE, LOCK_FILE, open_readonly, open_writable

_PATIENCE_S = 5.0


class Compacted(msgspec.Struct, frozen=True):
    """What compacting a store gave back."""

    bytes_before: int
    bytes_after: int
    blobs_removed: int


def back_up(source: Path, target: Path, done: Callable[[int], None]) -> int:
    """Copy a store, also while a server writes to it; the copy is the store as it was at one moment.

    The journal is named last: a copy that broke off has none, so that nobody takes it for a store. Blobs are copied
    before it, because a server may remove them with their rollouts, and after it, because it may write new ones.

    Args:
        source: directory of the store.
        target: directory that is made; it may be there already if it is empty.
        done: told how many blobs are copied so far.

    Returns: how many blobs were copied.
    Raises: CallerError if there is something in `target`; StoreError if either cannot be read or written.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CallerError(f"`{target}` is there already and is not empty", "Give a directory that does not exist yet")
    reading = open_readonly(source / JOURNAL_FILE)
    draft, copied = target / f"{JOURNAL_FILE}.partial", set[str]()
    try:
        target.mkdir(parents=True, exist_ok=True)
        _copy_blobs(source, target, copied, done)
        with contextlib.closing(sqlite3.connect(draft)) as writing:
            reading.backup(writing)
        # Once more for what came between: only what nobody has asked for lately is ever removed, so these stay.
        _copy_blobs(source, target, copied, done)
        _synced(draft)
        os.replace(draft, target / JOURNAL_FILE)
    except sqlite3.Error as error:
        raise fault(error, source / JOURNAL_FILE, "copy the journal") from error
    except OSError as error:
        raise StoreError(f"Cannot copy the store to `{target}`: {error}", "Free space there and try again") from error
    finally:
        reading.close()
    return len(copied)


def compact(directory: Path, wanted: Callable[[], frozenset[str]]) -> Compacted:
    """Give back the space of what nobody needs any more: free pages, blobs that no record names, half-written ones.

    Args:
        directory: of a store to which nobody writes.
        wanted: the hashes of all blobs that are needed; asked once nobody else can write.

    Raises: StoreError if a server has the store, or the disk has no room for a second journal.
    """
    open_readonly(directory / JOURNAL_FILE).close()
    lock = StoreLock.acquire(directory / LOCK_FILE)
    try:
        before = _size(directory)
        needed = wanted()
        orphans = [file for file in blob_files(directory) if file.name not in needed]
        for file in (*orphans, *draft_files(directory)):
            file.unlink()
        with contextlib.closing(open_writable(directory / JOURNAL_FILE, _PATIENCE_S)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return Compacted(before, _size(directory), len(orphans))
    except sqlite3.Error as error:
        raise fault(error, directory / JOURNAL_FILE, "compact") from error
    except OSError as error:
        raise StoreError(f"Cannot remove a file of `{directory}`: {error}", "Make its files writable") from error
    finally:
        lock.release()


def _copy_blobs(source: Path, target: Path, copied: set[str], done: Callable[[int], None]) -> None:
    for file in blob_files(source):
        if file.name in copied:
            continue
        # One that is removed meanwhile is named by nothing that is in the copy of the journal, made later.
        with contextlib.suppress(FileNotFoundError):
            _copy(file, target / BLOBS_DIRECTORY / file.parent.name / file.name)
            copied.add(file.name)
            done(len(copied))


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as content, to.open("wb") as copy:
        shutil.copyfileobj(content, copy)
    _synced(to)


def _synced(file: Path) -> None:
    with file.open("rb") as written:
        os.fsync(written.fileno())


def _size(directory: Path) -> int:
    return sum(file.stat().st_size for file in _files(directory))


def _files(directory: Path) -> Iterator[Path]:
    return (file for file in directory.rglob("*") if file.is_file())
