"""Whether a trajectory keeps every rule of the format (docs/reference/validate-codes.md)."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from turnstile.trajectory.check_calls import CallChecks, completions_of
from turnstile.trajectory.check_fields import check_fields, check_indices
from turnstile.trajectory.check_ownership import check_ownership
from turnstile.trajectory.check_sequences import check_sequence, check_tiling
from turnstile.trajectory.check_side import SideChecks, check_array_shapes, check_media_runs
from turnstile.trajectory.check_signal import FileSignal, check_signal
from turnstile.trajectory.files import Unreadable, members, records
from turnstile.trajectory.shapes import Rollout
from turnstile.trajectory.side_files import SideFiles
from turnstile.trajectory.violation import Fault, Violation

__all__ = ["STRANGERS_LIMIT", "FileCheck", "UnknownMeaning", "Violation", "validate", "validate_file"]

STRANGERS_LIMIT = 10
"""Lines that cannot be read at the head of a file after which it is taken for a file of another program."""


class UnknownMeaning(enum.Enum):
    """What it is that the meaning of trained log-probabilities is unknown."""

    REFUSED = enum.auto()
    """E305, an error."""
    ALLOWED = enum.auto()
    """W305, a warning."""


def validate(rollout: Rollout) -> Iterator[Violation]:
    """Everything that is wrong with one rollout, and what is worth knowing of it, as far as it shows by itself.

    A sequence whose segments do not tile it, and a rollout with an index that leads nowhere, are not looked at
    further: every later finding would be an echo.
    """
    for fault in _faults(rollout):
        yield _violation(fault, rollout)


class FileCheck:
    """One walk over a file, or over all trajectory files of a folder, and how far it came."""

    def __init__(self, path: str | os.PathLike[str], meaning: UnknownMeaning = UnknownMeaning.REFUSED) -> None:
        self._path = Path(path)
        self._meaning = meaning
        self.rollouts = 0
        """Rollouts that could be read so far."""
        self.gave_up = False
        """Whether a file was not read to its end because nothing in it looked like a rollout."""

    def violations(self) -> Iterator[Violation]:
        """Everything that is wrong, in the order of the records; holds one rollout at a time.

        Of a folder, ids are unique in all its files together, and a group may lie in several.
        Raises: CallerError if there is no such file or its name is of no known form; StoreError if the disk refuses.
        """
        signal = FileSignal()
        for member in members(self._path):
            where = member.name if self._path.is_dir() else ""
            for violation in self._in_file(member, signal):
                yield self._judged(msgspec.structs.replace(violation, file=where))
        yield from signal.close()

    def _judged(self, violation: Violation) -> Violation:
        if self._meaning is UnknownMeaning.ALLOWED and violation.code == "E305":
            return msgspec.structs.replace(violation, code="W305")
        return violation

    def _in_file(self, path: Path, signal: FileSignal) -> Iterator[Violation]:
        files = SideFiles(path)
        sides = SideChecks(files.find, "E602" if files.has_media else "W602")
        strangers = readable = 0
        for found in records(path):
            if isinstance(found, Unreadable):
                yield Violation(found.code, "-", None, None, f"{found.place}: {found.problem}")
                strangers += found.code == "E101"
                if strangers == STRANGERS_LIMIT and not readable:
                    self.gave_up = True
                    return
                continue
            readable += 1
            self.rollouts += 1
            yield from validate(found)
            for fault in signal.add(found):
                yield _violation(fault, found)
            for at, sequence in enumerate(found.sequences):
                for fault in sides.check(sequence, at):
                    yield _violation(fault, found)


def validate_file(path: str | os.PathLike[str]) -> Iterator[Violation]:
    """Everything that is wrong with a file, as `FileCheck.violations` has it."""
    return FileCheck(path).violations()


def _violation(fault: Fault, rollout: Rollout) -> Violation:
    return Violation(fault.code, rollout.rollout_id, fault.sequence, fault.index, fault.message)


def _faults(rollout: Rollout) -> Iterator[Fault]:
    yield from check_fields(rollout)
    lost = list(check_indices(rollout))
    yield from lost
    if lost:
        return
    tiled: list[int] = []
    for at, sequence in enumerate(rollout.sequences):
        untiled = list(check_tiling(sequence, at))
        yield from untiled
        if not untiled:
            tiled.append(at)
    completions = {at: completions_of(rollout.sequences[at]) for at in tiled}
    checks = CallChecks(rollout, completions)
    for at in tiled:
        yield from check_sequence(rollout, at)
        yield from checks.check_sequence(at)
        yield from check_media_runs(rollout.sequences[at], at)
        yield from check_array_shapes(rollout.sequences[at], at)
    yield from checks.check_finishes()
    yield from check_ownership(rollout, completions)
    yield from check_signal(rollout)
