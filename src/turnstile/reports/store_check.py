"""Whether a store is whole: its database, every record, every rollout, and every file that they name."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path

import msgspec

from turnstile.errors import StoreError, TurnstileError
from turnstile.generation import Forked, Rerendered
from turnstile.history.forest import Forest
from turnstile.journal import CallFailed, CallStarted, Record, RolloutFinished, RolloutStatus, TurnCommitted
from turnstile.reports.shelf import MODEL_FILES
from turnstile.store import Blobs, Reader, RolloutSummary
from turnstile.store.blob_names import named_blobs
from turnstile.store.blobs import blob_files
from turnstile.store.losses import INCIDENT
from turnstile.store.schema import MIGRATED
from turnstile.trajectory.assemble import assemble


class Weight(enum.StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """Something is lost."""
    NOTE = "note"
    """Nothing is."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be."""

    weight: Weight
    code: str
    place: str
    """A rollout as `ID#ATTEMPT`, a blob's hash, or `journal`."""
    message: str

    def __str__(self) -> str:
        return f"{self.weight} {self.code} {self.place} {self.message}"


class StoreCheck:
    """One walk over a store, and how far it came. It may run while a server writes."""

    def __init__(self, directory: Path, reader: Reader) -> None:
        self._directory = directory
        self._reader = reader
        self._blobs = Blobs(directory)
        self.attempts = 0
        """Attempts of rollouts that were read."""
        self.records = 0
        self.blobs = 0
        self.named: set[str] = set()
        """Hashes of the blobs that something names."""
        self.is_complete = True
        """Whether everything that may name a blob could be read."""

    def findings(self) -> Iterator[Finding]:
        """What is wrong, in the order journal, rollouts, blobs; holds one rollout at a time."""
        # Listed first: a blob is written before the record that names it, so one that comes later is no orphan.
        kept = [file.name for file in blob_files(self._directory)]
        yield from self._structure()
        try:
            self.named.update(value for key, value in self._reader.metas().items() if key.startswith(MODEL_FILES))
            yield from _history(self._reader.metas())
            for summary in self._reader.every_rollout():
                yield from self._attempt(summary)
                self.attempts += 1
        except StoreError as problem:
            self.is_complete = False
            yield Finding(Weight.ERROR, "journal_damaged", "journal", str(problem))
        yield from self._files(kept)

    def _structure(self) -> Iterator[Finding]:
        try:
            for problem in self._reader.damage():
                yield Finding(Weight.ERROR, "journal_damaged", "journal", problem)
        except StoreError as problem:
            # Where SQLite gives up, single rollouts may still be read.
            yield Finding(Weight.ERROR, "journal_damaged", "journal", str(problem))

    def _attempt(self, summary: RolloutSummary) -> Iterator[Finding]:
        place = f"{summary.rollout_id}#{summary.attempt}"
        seen: list[Record] = []
        try:
            for record in self._reader.records(summary.rollout_id, summary.attempt):
                seen.append(record)
                self.named.update(named_blobs(record))
            forest = Forest.of(seen)
            assemble(forest)
        except (TurnstileError, ValueError, LookupError) as problem:
            self.is_complete = False
            kind = problem.code if isinstance(problem, TurnstileError) else "rollout_unreadable"
            readable = f"{len(seen)} of its records were read before it"
            yield Finding(Weight.ERROR, kind, place, f"{problem} {readable}")
            return
        finally:
            self.records += len(seen)
        if wrong := _miscounted(summary, seen):
            yield Finding(Weight.ERROR, "summary_differs", place, wrong)
        if forest.open_calls and forest.finished is not None:
            calls = ", ".join(started.call_id for started in forest.open_calls)
            yield Finding(Weight.ERROR, "call_without_end", place, f"the rollout is closed, but {calls} never ended")

    def _files(self, kept: list[str]) -> Iterator[Finding]:
        for sha256 in sorted(self.named - set(kept)):
            # It may have come since the list was made.
            if not self._blobs.has(sha256):
                yield Finding(Weight.ERROR, "blob_missing", sha256, "a record names it, but it is not there")
        for sha256 in kept:
            self.blobs += 1
            try:
                self._blobs.get(sha256)
            except StoreError as problem:
                yield Finding(Weight.ERROR, problem.code, sha256, problem.problem)
            if self.is_complete and sha256 not in self.named:
                message = "no record names it; `turnstile store compact` removes it"
                yield Finding(Weight.NOTE, "blob_orphan", sha256, message)


def _history(metas: dict[str, str]) -> Iterator[Finding]:
    """What the store itself notes of its past."""
    for key, value in metas.items():
        if key.startswith(INCIDENT):
            yield Finding(Weight.NOTE, "store_incident", "journal", f"{key.removeprefix(INCIDENT)}: {value}")
        elif key.startswith(MIGRATED):
            yield Finding(Weight.NOTE, "store_migrated", "journal", f"to version {key.removeprefix(MIGRATED)}, {value}")


def wanted_blobs(reader: Reader) -> frozenset[str]:
    """The hashes of all blobs that anything in a journal names.

    Raises: StoreError if a record cannot be read: what it names would be taken for unwanted.
    """
    named = {value for key, value in reader.metas().items() if key.startswith(MODEL_FILES)}
    for summary in reader.every_rollout():
        for record in reader.records(summary.rollout_id, summary.attempt):
            named.update(named_blobs(record))
    return frozenset(named)


def _miscounted(summary: RolloutSummary, records: list[Record]) -> str:
    """What the row of the listing says otherwise than the records; empty if nothing."""
    started = [record for record in records if isinstance(record, CallStarted)]
    turns = [record for record in records if isinstance(record, TurnCommitted)]
    ends = [record for record in records if isinstance(record, RolloutFinished)]
    truth = {
        "calls": len(started),
        "turns": len(turns),
        "failed_calls": sum(isinstance(record, CallFailed) for record in records),
        "forks": sum(isinstance(record.history, Forked | Rerendered) for record in started),
        "sampled_tokens": sum(len(choice.ids_S) for record in turns for choice in record.choices),
        "status": ends[-1].status if ends else RolloutStatus.RUNNING,
        "reward": ends[-1].reward if ends else None,
    }
    wrong = (f"{name} is {value} by the records, {getattr(summary, name)} in the listing"
             for name, value in truth.items() if getattr(summary, name) != value)  # fmt: skip
    return "; ".join(wrong)
