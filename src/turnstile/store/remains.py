"""What a damaged journal still holds, told apart by the form of its rows; records by their checksum."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import TypeAlias

import msgspec

from turnstile.errors import StoreError
from turnstile.reasons import DeleteReason
from turnstile.store.pages import Pages, Value
from turnstile.store.schema import APPLICATION_ID, JOURNAL_FILE
from turnstile.store.tables import checksum

AttemptKey: TypeAlias = tuple[str, int]
"""A rollout's id and the number of an attempt."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LEAST_EVIDENCE = 2
"""A single entry may be a name with a flipped bit; every attempt has left at least three."""


class Remains(msgspec.Struct):
    """All that was found, and what the indices say was there."""

    records: dict[AttemptKey, dict[int, bytes]]
    """Bodies of records by their number, each with the checksum that it was written with."""
    expected: dict[AttemptKey, set[int]]
    """Numbers of records that an index names."""
    summaries: dict[AttemptKey, tuple[Value, ...]]
    """Rows of the listing."""
    tombstones: dict[AttemptKey, tuple[Value, ...]]
    metas: dict[str, str]
    exports: set[tuple[Value, ...]]
    torn_commits: int
    """Commits in the write-ahead log that stand behind damage."""
    pages_gone: int = 0
    """Pages that the file had, as its header says, and that are not there."""

    def attempts(self) -> list[AttemptKey]:
        """Every attempt that was there and not deleted, in the order of their first records."""
        evidence: defaultdict[AttemptKey, int] = defaultdict(int)
        for key in self.summaries:
            evidence[key] += 1
        for key, numbers in (*self.expected.items(), *((key, set(found)) for key, found in self.records.items())):
            evidence[key] += len(numbers)
        there = [key for key, count in evidence.items() if count >= _LEAST_EVIDENCE and key not in self.tombstones]
        return sorted(there, key=lambda key: min({*self.expected.get(key, ()), *self.records.get(key, ())}, default=0))


def remains(directory: Path) -> Remains:
    """Read all pages of a store's journal.

    Raises: StoreError if the file cannot be read at all, or is the whole database of another program.
    """
    file = directory / JOURNAL_FILE
    try:
        pages = Pages(file)
    except OSError as error:
        raise StoreError(f"Cannot read `{file}`: {error.strerror}", "Name the directory of a store") from error
    found = Remains(defaultdict(dict), defaultdict(set), {}, {}, {}, set(), pages.torn_commits, pages.gone)
    is_used = False
    for number, columns in pages.rows():
        is_used = True
        _sort(found, number, columns)
    # Rows of other programs may look like entries of our indices; no record of theirs has our checksum.
    nothing_of_ours = not any(found.records.values()) and not found.tombstones
    # A journal of ours whose first pages are all in its log has no owner yet, and no rows.
    is_foreign = pages.application_id not in (None, APPLICATION_ID) and (pages.application_id or is_used)
    if nothing_of_ours and is_foreign:
        raise StoreError(f"The database `{file}` is no journal of Turnstile's", "Name the directory of a store")
    return found


def _sort(found: Remains, number: int, columns: tuple[Value, ...]) -> None:
    match columns:
        case (None, str(name), int(attempt), str(), str(), int(crc32), bytes(body)) if checksum(body) == crc32:
            found.records[name, attempt][number] = body
        case (str(name), int(attempt), int(seq), int(again)) if seq == again and _ID.fullmatch(name) and attempt > 0:
            found.expected[name, attempt].add(seq)
        case (None, str(name), int(attempt), *rest) if len(columns) == 17 and _ID.fullmatch(name):
            found.summaries[name, attempt] = (number, name, attempt, *rest)
        case (None, str(name), int(attempt), *rest) if len(columns) == 14 and _is_reason(rest[4]):
            found.tombstones[name, attempt] = (number, name, attempt, *rest)
        case (str(key), str(value)):
            found.metas[key] = value
        case (str(), int(), str(), str()):
            found.exports.add(columns)
        case _:
            pass


def _is_reason(value: Value) -> bool:
    return value in set(DeleteReason)
