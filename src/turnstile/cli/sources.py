"""Where a command's trajectories come from: a store, a trajectory file, or a folder of such files."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from turnstile.errors import CallerError, StoreError
from turnstile.history.forest import Forest
from turnstile.store import Blobs, Reader, RolloutSummary
from turnstile.store.exports import ExportMark, mark_beside
from turnstile.store.schema import JOURNAL_FILE
from turnstile.trajectory.assemble import ConservationError, assemble
from turnstile.trajectory.files import Unreadable, members, records
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.rules import Rules
from turnstile.trajectory.side_files import SideBytesLost, SideFiles, SideKind


class Selection(msgspec.Struct, frozen=True):
    """Which rollouts are asked for."""

    names: tuple[str, ...] = ()
    """Their ids; empty: any."""
    group: str | None = None
    """Their group; None: any."""


AttemptKey: TypeAlias = tuple[str, int]
"""A rollout's id and the number of an attempt."""


class Source(Protocol):
    """Trajectories, one by one, and the bytes that they name."""

    @property
    def total(self) -> int | None:
        """How many there will be; None where only reading tells."""
        ...

    @property
    def lost(self) -> list[str]:
        """What could not be given, or not whole, a line each; it costs no other rollout."""
        ...

    def rollouts(self) -> Iterator[Rollout]:
        """The rollouts that were asked for. Raises: CallerError if one that was named is not there."""
        ...

    def side_bytes(self, kind: SideKind, name_sha256: str) -> bytes:
        """Bytes that the rollout given last names. Raises: SideBytesLost if they are not there."""
        ...

    def mark(self, left: Iterable[AttemptKey], destination: str, at: datetime) -> None:
        """Note where attempts that were given have gone. Raises: StoreError if that cannot be noted."""
        ...


@contextmanager
def open_source(path: Path, selection: Selection, rules: Rules) -> Generator[Source]:
    """Trajectories of a store, of a folder of stores (docs/several-processes.md), or of files.

    Raises: CallerError if there is nothing of what is asked for, or if rules are given that only a store can follow;
    StoreError if the store cannot be read.
    """
    if path.is_file() or (path.is_dir() and not (path / JOURNAL_FILE).exists() and _holds_files(path)):
        if rules.told():
            raise CallerError(
                f"`{path}` is made already; how its tokens are weighted and trained is chosen when a store is exported",
                "Export the store with these options",
            )
        yield _FileSource(path, selection)
        return
    with ExitStack() as stack:
        stores = [_OpenStore(each, stack.enter_context(Reader.open(each)), Blobs(each)) for each in store_folders(path)]
        listed, lost = _listed(stores, selection)
        if not listed and not lost and not any(store.reader.rollouts(limit=1) for store in stores):
            raise CallerError(f"No rollouts in {path}", "Run an agent through its server first", code="store_empty")
        yield _StoreSource(_chosen(listed, selection, lost), rules, lost)


def store_folders(path: Path) -> list[Path]:
    """The stores that a path names: itself, or those in it, in order; itself too where there is none."""
    if (path / JOURNAL_FILE).exists() or not path.is_dir():
        return [path]
    return sorted(each.parent for each in path.glob(f"*/{JOURNAL_FILE}")) or [path]


class _OpenStore(msgspec.Struct, frozen=True):
    """One of the stores that are read as one."""

    directory: Path
    reader: Reader
    blobs: Blobs


_Chosen: TypeAlias = list[tuple[_OpenStore, RolloutSummary]]


def _holds_files(path: Path) -> bool:
    try:
        return bool(members(path))
    except CallerError:
        return False


class _StoreSource:
    def __init__(self, chosen: _Chosen, rules: Rules, lost: list[str]) -> None:
        self._chosen = chosen
        self._rules = rules
        self._given_by: _OpenStore | None = None
        self._home: dict[AttemptKey, Path] = {}
        self._never_listed = lost
        self.lost = list(lost)

    @property
    def total(self) -> int | None:
        return len(self._chosen)

    def rollouts(self) -> Iterator[Rollout]:
        self.lost[:] = self._never_listed
        for store, summary in self._chosen:
            try:
                forest = Forest.of(store.reader.records(summary.rollout_id, summary.attempt))
                rollout = assemble(forest, self._rules)
            except (StoreError, ConservationError, LookupError) as damaged:
                # A record that others refer to may be among what is lost.
                self.lost.append(f"not written: {summary.rollout_id} attempt {summary.attempt}: {damaged}")
            else:
                self._given_by = store
                self._home[summary.rollout_id, summary.attempt] = store.directory
                yield rollout

    def mark(self, left: Iterable[AttemptKey], destination: str, at: datetime) -> None:
        by_store: dict[Path, list[ExportMark]] = {}
        for key in left:
            by_store.setdefault(self._home[key], []).append(ExportMark(*key, destination, at))
        for directory, marks in by_store.items():
            mark_beside(directory, marks)

    def side_bytes(self, kind: SideKind, name_sha256: str) -> bytes:
        # A store keeps all of them by hash, whatever they are.
        del kind
        given_by = self._given_by or self._chosen[0][0]
        try:
            return given_by.blobs.get(name_sha256)
        except StoreError as lost:
            raise SideBytesLost(lost.problem, lost.remedy) from lost


class _FileSource:
    def __init__(self, path: Path, selection: Selection) -> None:
        self._members = members(path)
        self._selection = selection
        self._reading = SideFiles(self._members[0])
        self.lost: list[str] = []

    @property
    def total(self) -> int | None:
        return None

    def rollouts(self) -> Iterator[Rollout]:
        found: set[str] = set()
        for member in self._members:
            self._reading = SideFiles(member)
            for record in records(member):
                if isinstance(record, Unreadable):
                    self.lost.append(f"not written: {record.place} of {member}: {record.problem}")
                elif self._is_chosen(record):
                    found.add(record.rollout_id)
                    yield record
        missing = sorted(set(self._selection.names) - found)
        if missing:
            raise _not_found(f"There is no rollout `{missing[0]}`", self._selection.group)
        if self._selection.group is not None and not found:
            raise _not_found("There is no rollout", self._selection.group)

    def _is_chosen(self, rollout: Rollout) -> bool:
        names, group = self._selection.names, self._selection.group
        return (not names or rollout.rollout_id in names) and group in (None, rollout.group_id)

    def side_bytes(self, kind: SideKind, name_sha256: str) -> bytes:
        return self._reading.side_bytes(kind, name_sha256)

    def mark(self, left: Iterable[AttemptKey], destination: str, at: datetime) -> None:
        """A file keeps no account of where it was copied to."""


def _not_found(problem: str, group: str | None) -> CallerError:
    within = f" in group `{group}`" if group else ""
    return CallerError(
        f"{problem}{within}",
        "Look at the ids and groups in the file, or leave --rollout and --group out to take all",
        code="rollout_not_found",
    )


def _listed(stores: list[_OpenStore], selection: Selection) -> tuple[_Chosen, list[str]]:
    """The attempts that may be asked for, and what a damaged listing did not give."""
    found: _Chosen = []
    lost: list[str] = []
    for store in stores:
        before = len(found)
        try:
            for summary in store.reader.every_rollout(selection.group):
                if not selection.names or summary.rollout_id in selection.names:
                    found.append((store, summary))
        except StoreError as damaged:
            read = f"{len(found) - before} attempts could be listed in {store.directory}, others could not"
            lost.append(f"not written: {read}: {damaged} `turnstile store salvage` says which, and saves them")
    return found, lost


def _chosen(found: _Chosen, selection: Selection, lost: list[str]) -> _Chosen:
    names, group = selection.names, selection.group
    missing = sorted(set(names) - {summary.rollout_id for _, summary in found})
    if missing and not lost:
        raise CallerError(
            f"The store has no rollout `{missing[0]}`" + (f" in group `{group}`" if group else ""),
            "See the ids with `turnstile drift STORE --by rollout`, or leave --rollout out to write all",
            code="rollout_not_found",
        )
    if not found and not lost:
        raise CallerError(
            f"The store has no rollout in group `{group}`",
            "See the groups with `turnstile drift STORE --by group`, or leave --group out to write all",
            code="rollout_not_found",
        )
    return found
