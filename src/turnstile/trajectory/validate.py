"""Whether a trajectory keeps every rule of the format (docs/reference/validate-codes.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from turnstile.trajectory.check_calls import CallChecks, completions_of
from turnstile.trajectory.check_fields import check_fields, check_indices
from turnstile.trajectory.check_ownership import check_ownership
from turnstile.trajectory.check_sequences import check_sequence, check_tiling
from turnstile.trajectory.check_side import check_array_shapes, check_media_runs, check_side_bytes
from turnstile.trajectory.check_signal import FileSignal, check_signal
from turnstile.trajectory.files import SideFiles, Unreadable, records
from turnstile.trajectory.shapes import Rollout
from turnstile.trajectory.violation import Fault, Violation

__all__ = ["STRANGERS_LIMIT", "FileCheck", "Violation", "validate", "validate_file"]

STRANGERS_LIMIT = 10
"""Lines that cannot be read at the head of a file after which it is taken for a file of another program."""


def validate(rollout: Rollout) -> Iterator[Violation]:
    """Everything that is wrong with one rollout, and what is worth knowing of it, as far as it shows by itself.

    A sequence whose segments do not tile it, and a rollout with an index that leads nowhere, are not looked at
    further: every later finding would be an echo.
    """
    for fault in _faults(rollout):
        yield _violation(fault, rollout)


class FileCheck:
    """One walk over a file, and how far it came."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self.rollouts = 0
        """Rollouts that could be read so far."""
        self.gave_up = False
        """Whether it stopped because nothing that it read looked like a rollout."""

    def violations(self) -> Iterator[Violation]:
        """Everything that is wrong with the file, in the order of its records; holds one rollout at a time.

        Raises: CallerError if there is no such file or its name is of no known form; StoreError if the disk refuses.
        """
        signal = FileSignal()
        side = SideFiles(self._path)
        strangers = 0
        for found in records(self._path):
            if isinstance(found, Unreadable):
                yield Violation(found.code, "-", None, None, f"{found.place}: {found.problem}")
                strangers += found.code == "E101"
                if strangers == STRANGERS_LIMIT and not self.rollouts:
                    self.gave_up = True
                    return
                continue
            self.rollouts += 1
            yield from validate(found)
            for fault in signal.add(found):
                yield _violation(fault, found)
            for at, sequence in enumerate(found.sequences):
                missing = "E602" if side.has_media else "W602"
                for fault in check_side_bytes(sequence, at, side.read, missing):
                    yield _violation(fault, found)
        yield from signal.close()


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
