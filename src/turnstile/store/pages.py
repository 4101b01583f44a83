"""SQLite's file, page by page, read without SQLite: what a damaged database still holds.

Source: sqlite.org/fileformat2.html. A table's rows are in leaf pages, an index's entries in leaf and interior pages;
each page can be read without any other, but for the overflow of long rows. Whatever does not parse is passed over:
whoever reads has to know by checksum that a row is the one that was written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias, final

Value: TypeAlias = int | float | str | bytes | None
Row: TypeAlias = tuple[int, tuple[Value, ...]]
"""The row's number, 0 for an entry of an index, and its columns."""

_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x0A, 0x02
_FILE_HEADER = 100
_MAGIC = b"SQLite format 3\0"
_INT_BYTES = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_LONGEST_ROW = 1 << 30
_WAL_HEADER, _FRAME_HEADER = 32, 24
BIG_ENDIAN_SUMS, LITTLE_ENDIAN_SUMS = 0x377F0683, 0x377F0682


@final
class Pages:
    """The pages of a database, those of its write-ahead log's commits in the place of the file's."""

    def __init__(self, file: Path) -> None:
        """Read a database; `FILE-wal` beside it too. Raises: OSError."""
        self._content = file.read_bytes()
        log = file.with_name(f"{file.name}-wal")
        self.size = _page_size(self._content)
        self._newer, self.torn_commits = _committed(log.read_bytes() if log.exists() else b"", self.size)
        reserved = self._content[20] if len(self._content) > _FILE_HEADER else 0
        self._usable = self.size - (reserved if reserved < 64 else 0)

    @property
    def gone(self) -> int:
        """How many pages are missing at the file's end, by what its header, or the log's newest one, says it has."""
        header = self.page(1)[:_FILE_HEADER]
        # The count is to be believed only where its writer left its mark (fileformat2.html, 1.3.7).
        if not header.startswith(_MAGIC) or header[24:28] != header[92:96]:
            return 0
        return max(0, int.from_bytes(header[28:32], "big") - len(self))

    @property
    def application_id(self) -> int | None:
        """Whose database it is, by its header; None if that is none (fileformat2.html, 1.3)."""
        header = self.page(1)[:_FILE_HEADER]
        return int.from_bytes(header[68:72], "big") if header.startswith(_MAGIC) else None

    def __len__(self) -> int:
        return max(-(-len(self._content) // self.size), max(self._newer, default=0))

    def page(self, number: int) -> bytes:
        """A page by its number, from 1; empty if the file ends before it."""
        found = self._newer.get(number)
        return self._content[(number - 1) * self.size : number * self.size] if found is None else found

    def rows(self) -> Iterator[Row]:
        """All rows of tables and entries of indices that parse, also those that were freed."""
        for number in range(1, len(self) + 1):
            page = self.page(number)
            start = _FILE_HEADER if number == 1 else 0
            if len(page) < start + 12 or page[start] not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
                continue
            yield from self._rows_of(page, start)

    def _rows_of(self, page: bytes, start: int) -> Iterator[Row]:
        kind = page[start]
        first = start + (12 if kind == _INDEX_INTERIOR else 8)
        count = int.from_bytes(page[start + 3 : start + 5], "big")
        for at in range(first, min(first + 2 * count, len(page) - 1), 2):
            cell = int.from_bytes(page[at : at + 2], "big")
            try:
                yield self._row(page, cell, kind)
            except (IndexError, ValueError, struct.error):
                continue

    def _row(self, page: bytes, at: int, kind: int) -> Row:
        at += 4 if kind == _INDEX_INTERIOR else 0
        length, at = _varint(page, at)
        number, at = _varint(page, at) if kind == _TABLE_LEAF else (0, at)
        if not 2 <= length <= _LONGEST_ROW:
            raise ValueError
        return number, _columns(self._payload(page, at, length, kind))

    def _payload(self, page: bytes, at: int, length: int, kind: int) -> bytes:
        usable = self._usable
        longest = usable - 35 if kind == _TABLE_LEAF else (usable - 12) * 64 // 255 - 23
        if length <= longest:
            return page[at : at + length]
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= longest else least
        pieces, left = [page[at : at + local]], length - local
        following = int.from_bytes(page[at + local : at + local + 4], "big")
        while left > 0:
            overflow = self.page(following)
            if not following or len(overflow) < 4:
                raise ValueError
            pieces.append(overflow[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
            following = int.from_bytes(overflow[:4], "big")
        return b"".join(pieces)


def _page_size(content: bytes) -> int:
    told = int.from_bytes(content[16:18], "big")
    size = 65536 if told == 1 else told
    # A header that is damaged itself: SQLite's own default, with which every journal is made.
    return size if 512 <= size <= 65536 and size & (size - 1) == 0 else 4096


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = content[at + count]
        if count == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, at + count + 1
    raise ValueError


def _columns(payload: bytes) -> tuple[Value, ...]:
    header, at = _varint(payload, 0)
    kinds: list[int] = []
    while at < header:
        kind, at = _varint(payload, at)
        kinds.append(kind)
    if at != header:
        raise ValueError
    values: list[Value] = []
    for kind in kinds:
        value, at = _value(payload, at, kind)
        values.append(value)
    if at != len(payload):
        raise ValueError
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind in (0, 8, 9):
        return (None if kind == 0 else kind - 8), at
    length = _INT_BYTES.get(kind, 8) if kind < 8 else (kind - 12) // 2
    content = payload[at : at + length]
    if length < 0 or len(content) != length or kind in (10, 11):
        raise ValueError
    if kind == 7:
        return struct.unpack(">d", content)[0], at + length
    if kind < 7:
        return int.from_bytes(content, "big", signed=True), at + length
    return (content.decode() if kind % 2 else content), at + length


def _committed(log: bytes, page_size: int) -> tuple[dict[int, bytes], int]:
    """The pages of all commits that are whole, by number; and how many commits stand behind the first torn frame."""
    magic = int.from_bytes(log[:4], "big")
    if len(log) < _WAL_HEADER or magic not in (BIG_ENDIAN_SUMS, LITTLE_ENDIAN_SUMS):
        return {}, 0
    order = ">" if magic == BIG_ENDIAN_SUMS else "<"
    salt, sums = log[16:24], log_sums(log[:24], (0, 0), order)
    newer: dict[int, bytes] = {}
    waiting: dict[int, bytes] = {}
    is_torn, lost = sums != struct.unpack(">2I", log[24:32]), 0
    step = _FRAME_HEADER + page_size
    for at in range(_WAL_HEADER, len(log) - step + 1, step):
        head, page = log[at : at + _FRAME_HEADER], log[at + _FRAME_HEADER : at + step]
        if head[8:16] != salt:
            # From before the log was begun anew.
            break
        number, size_after = struct.unpack(">2I", head[:8])
        sums = log_sums(page, log_sums(head[:8], sums, order), order)
        is_torn = is_torn or sums != struct.unpack(">2I", head[16:24])
        if is_torn:
            lost += size_after > 0
            continue
        waiting[number] = page
        if size_after:
            newer |= waiting
            waiting = {}
    return newer, lost


def log_sums(content: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    """The checksums of a write-ahead log, gone on with from those before; `order` is that of the words, `<` or `>`."""
    first, second = before
    for one, two in struct.iter_unpack(f"{order}2I", content):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
