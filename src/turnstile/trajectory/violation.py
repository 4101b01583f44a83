"""One thing that is wrong with a trajectory, or worth knowing of it."""

from __future__ import annotations

import msgspec


class Violation(msgspec.Struct, frozen=True):
    """A rule of docs/reference/validate-codes.md that does not hold."""

    code: str
    """E... = wrong, W... = worth knowing."""
    rollout_id: str
    """`-` where no rollout could be read."""
    sequence: int | None
    """Index of the sequence at fault."""
    index: int | None
    """Index of what is at fault in it: a token, a sampled token, or, without a sequence, a call."""
    message: str
    file: str = ""
    """Name of the file, where a whole folder is checked."""

    def __str__(self) -> str:
        """The line that `turnstile validate` prints: `CODE rollout_id sequence index message`."""
        sequence = "-" if self.sequence is None else self.sequence
        index = "-" if self.index is None else self.index
        where = f" (in {self.file})" if self.file else ""
        return f"{self.code} {self.rollout_id} {sequence} {index} {self.message}{where}"


class Fault(msgspec.Struct, frozen=True):
    """A violation before it is known whose rollout it is in."""

    code: str
    message: str
    sequence: int | None = None
    index: int | None = None
