"""What a store lost before it was opened: seen in its files, where SQLite alone would open it and say nothing."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

from turnstile.errors import StoreError
from turnstile.store.blobs import blob_files
from turnstile.store.pages import BIG_ENDIAN_SUMS, LITTLE_ENDIAN_SUMS, log_sums
from turnstile.store.schema import JOURNAL_FILE

INCIDENT = "incident:"
"""Begins the keys of `meta` that say what was lost, and when that was seen."""

_NOTE = "INSERT OR REPLACE INTO meta (key, value) VALUES (? || strftime('%Y-%m-%dT%H:%M:%fZ', 'now') || ?, ?)"
_LAST = "of the process that had the store last"
_WAL_HEADER, _FRAME_HEADER = 32, 24
_INDEX_HEADER = 100
_INDEX_VERSION = 3_007_000


def refuse_emptied(directory: Path) -> None:
    """Refuse a store whose journal is gone or empty although something else of it is there.

    Raises: StoreError `journal_lost`: a new journal would hide that one is missing.
    """
    file = directory / JOURNAL_FILE
    if file.exists() and file.stat().st_size:
        return
    log = _log_of(file)
    has_log = log.exists() and log.stat().st_size > 0
    if has_log or next(blob_files(directory), None) is not None:
        what = "is empty" if file.exists() else "is gone"
        raise StoreError(
            f"The journal `{file}` {what}, but {'its log is' if has_log else 'blobs are'} beside it",
            "Restore it from a copy, or give another directory to begin anew",
            code="journal_lost",
        )


def log_is_gone(directory: Path, *, was_left: bool) -> str:
    """A sentence if a killed process left a write-ahead log that is gone, cut, or begins as none; else empty."""
    file = directory / JOURNAL_FILE
    if not was_left or not file.exists():
        return ""
    log = _log_of(file)
    if not log.exists():
        return f"The write-ahead log {_LAST} is gone; what it wrote last may be lost with it."
    # SQLite passes over a log that does not begin as one, and says nothing.
    with log.open("rb") as reading:
        beginning = reading.read(_WAL_HEADER)
    if beginning and (len(beginning) < _WAL_HEADER or not _begins_log(beginning)):
        return f"The write-ahead log {_LAST} is damaged at its beginning; what stood in it is lost."
    if missing := _frames_missing(log, beginning):
        return f"The write-ahead log {_LAST} has lost its end ({missing} of its pages), and the commits in it."
    return ""


def _frames_missing(log: Path, header: bytes) -> int:
    """How many frames a log's index counts that are neither in the log nor, by then, in the journal.

    The index outlives a kill; where it is gone, damaged or of an older log, nothing is known, and none is missing.
    Source: sqlite.org/walformat.html, 2.1 and 2.2; integers are of this machine's byte order.
    """
    index = log.with_name(f"{log.name.removesuffix('-wal')}-shm")
    try:
        with index.open("rb") as reading:
            begins = reading.read(_INDEX_HEADER)
    except OSError:
        return 0
    if len(begins) < _INDEX_HEADER or begins[:48] != begins[48:96] or (header and header[16:24] != begins[32:40]):
        return 0
    version, is_made, counted, kept = struct.unpack("=I8xBxxxI", begins[:20]) + struct.unpack("=I", begins[96:])
    if version != _INDEX_VERSION or is_made != 1:
        return 0
    return max(0, counted - max(kept, sum(1 for _ in _frames(log))))


def _frames(log: Path) -> Iterator[bytes]:
    """The headers of the frames of a write-ahead log, up to the first that is of an older one; nothing is checked."""
    try:
        with log.open("rb") as reading:
            header = reading.read(_WAL_HEADER)
            if len(header) < _WAL_HEADER:
                return
            step = _FRAME_HEADER + int.from_bytes(header[8:12], "big")
            for number in range((log.stat().st_size - _WAL_HEADER) // step):
                reading.seek(_WAL_HEADER + number * step)
                frame = reading.read(_FRAME_HEADER)
                if frame[8:16] != header[16:24]:
                    return
                yield frame
    except OSError:
        return


def _begins_log(header: bytes) -> bool:
    magic = int.from_bytes(header[:4], "big")
    order = {BIG_ENDIAN_SUMS: ">", LITTLE_ENDIAN_SUMS: "<"}.get(magic)
    return order is not None and log_sums(header[:24], (0, 0), order) == struct.unpack(">2I", header[24:])


def commits_in_log(directory: Path) -> tuple[int, ...]:
    """The frames of the write-ahead log, from 1, with which commits end, as their headers say; nothing is checked."""
    frames = enumerate(_frames(_log_of(directory / JOURNAL_FILE)), 1)
    return tuple(number for number, frame in frames if any(frame[4:8]))


def behind_damage(ends: tuple[int, ...], read: int) -> str:
    """A sentence if commits stand behind the frames that could be read; else empty.

    The first frame that cannot be read may be one that a killed process had not finished: it is no loss.
    """
    lost = sum(end > read + 1 for end in ends)
    return f"{lost} commits at the end of the write-ahead log are damaged and lost." if lost else ""


def incidents(connection: sqlite3.Connection, gone: str, ends: tuple[int, ...]) -> tuple[str, ...]:
    """What was lost, in sentences, noted in the store itself too.

    Args:
        connection: that writes, just opened.
        gone: as `log_is_gone` says.
        ends: as `commits_in_log` said before the opening.

    Raises: sqlite3.Error.
    """
    # How many frames SQLite takes for whole is known only by asking for a checkpoint.
    read = int(connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]) if ends else 0
    found = tuple(filter(None, (gone, behind_damage(ends, read))))
    for number, sentence in enumerate(found):
        connection.execute(_NOTE, (INCIDENT, f" {number}", sentence))
    return found


def _log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")
