"""Runs of token ids and log-probabilities: immutable, aligned, kept as packed bytes.

A run of T ids is 4 * T bytes (little-endian int32), so that a prefix test is one memory comparison and
joining two runs never makes a Python integer. `_T` counts tokens of a sequence, `_S` sampled tokens only.
"""

from __future__ import annotations

import enum
import hashlib
import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, final, overload

import msgspec

_WIDTH = 4
_FLOAT32_LIMIT = 3.4028235677973366e38
"""Numbers from here on round to infinity in float32."""
_SWAP = sys.byteorder == "big"
LOWEST_LOGPROB = -9000.0
"""No id is ever sampled at or below it: engines put such numbers in the place of one that is not finite."""


def _packed(values: array[int] | array[float]) -> bytes:
    if _SWAP:
        values.byteswap()
    return values.tobytes()


@final
class IdRun:
    """An immutable run of token ids, int32[T]."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes = b"") -> None:
        """Wrap little-endian int32 bytes.

        Raises: ValueError if the length is no multiple of 4.
        """
        if len(packed) % _WIDTH:
            raise ValueError(f"{len(packed)} bytes are no whole number of int32 ids")
        self.packed = packed

    @classmethod
    def of(cls, ids: Iterable[int]) -> IdRun:
        """Pack ids. Raises: OverflowError if one is outside int32."""
        return cls(_packed(array("i", ids)))

    def __len__(self) -> int:
        return len(self.packed) // _WIDTH

    def __bool__(self) -> bool:
        return bool(self.packed)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdRun) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def __repr__(self) -> str:
        ids = self.tolist()
        shown = ids if len(ids) <= 12 else [*ids[:6], "...", *ids[-5:]]
        return f"IdRun({len(ids)}: {', '.join(map(str, shown))})"

    def __add__(self, other: IdRun) -> IdRun:
        return IdRun(self.packed + other.packed)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> IdRun: ...
    def __getitem__(self, at: int | slice) -> int | IdRun:
        if isinstance(at, slice):
            start, end, step = at.indices(len(self))
            return self.slice(start, max(start, end)) if step == 1 else IdRun.of(self.tolist()[at])
        length = len(self)
        at = at + length if at < 0 else at
        if not 0 <= at < length:
            raise IndexError(at)
        return int.from_bytes(self.packed[at * _WIDTH : (at + 1) * _WIDTH], "little", signed=True)

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def slice(self, start: int, end: int | None = None) -> IdRun:
        """Ids [start, end), both non-negative."""
        return IdRun(self.packed[start * _WIDTH : None if end is None else end * _WIDTH])

    def tolist(self) -> list[int]:
        """The ids as Python integers; costs time and memory in proportion to T."""
        ids = array("i", self.packed)
        if _SWAP:
            ids.byteswap()
        return ids.tolist()

    def places(self, token_id: int) -> list[int]:
        """The indices of an id, found without making the other ids Python integers."""
        wanted = token_id.to_bytes(_WIDTH, "little", signed=True)
        found: list[int] = []
        at = self.packed.find(wanted)
        while at >= 0:
            # Bytes of two neighbours may look like it.
            if at % _WIDTH:
                at = self.packed.find(wanted, at + 1)
            else:
                found.append(at // _WIDTH)
                at = self.packed.find(wanted, at + _WIDTH)
        return found

    def startswith(self, prefix: IdRun) -> bool:
        """Whether the first len(prefix) ids are `prefix`."""
        return self.packed.startswith(prefix.packed)

    def sha256(self) -> str:
        """The `ids hash` of trajectory format 1: hex sha256 of the ids as little-endian int32."""
        return hashlib.sha256(self.packed).hexdigest()


NO_IDS = IdRun()


@final
class IdsDigest:
    """The ids hash of a run that grows: each step costs what it adds."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        """That of no ids."""
        self._state = hashlib.sha256()

    def then(self, run: IdRun) -> IdsDigest:
        """That of the run with another one behind it."""
        longer = IdsDigest()
        longer._state = self._state.copy()
        longer._state.update(run.packed)
        return longer

    def hexdigest(self) -> str:
        """The same as `sha256` of the whole run."""
        return self._state.hexdigest()


def join(runs: Iterable[IdRun]) -> IdRun:
    """All runs, one after the other, in one copy."""
    return IdRun(b"".join(run.packed for run in runs))


def first_difference(a: IdRun, b: IdRun) -> int | None:
    """Index of the first id at which two runs differ; None if they are equal.

    Where one run is a prefix of the other, the answer is the shorter length.
    """
    if a == b:
        return None
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a.packed[low * _WIDTH : middle * _WIDTH] == b.packed[low * _WIDTH : middle * _WIDTH]:
            low = middle
        else:
            high = middle - 1
    return low


def _within_float32(value: float) -> float:
    # Adding 0.0 makes -0.0 the one zero: the two are written alike.
    return value + 0.0 if abs(value) < _FLOAT32_LIMIT else math.nan


@final
class LogprobRun:
    """Natural-log probabilities of a run of sampled tokens, (float32 or unknown)[S].

    What the engine did not say, or said as no finite number, is unknown: it has no value at all, and its
    place is listed in `unknown`. No sentinel is ever kept.
    """

    __slots__ = ("packed", "unknown")

    def __init__(self, packed: bytes = b"", unknown: tuple[int, ...] = ()) -> None:
        """Wrap little-endian float32 bytes; entries at the sorted indices `unknown` are zero and void.

        Raises: ValueError if the length is no multiple of 4 or an index is out of range.
        """
        if len(packed) % _WIDTH:
            raise ValueError(f"{len(packed)} bytes are no whole number of float32 values")
        if unknown and not 0 <= unknown[0] <= unknown[-1] < len(packed) // _WIDTH:
            raise ValueError(f"unknown entries {unknown} outside {len(packed) // _WIDTH} values")
        self.packed = packed
        self.unknown = unknown

    @classmethod
    def of(cls, values: Sequence[float | None]) -> LogprobRun:
        """Pack values; None, NaN and infinities become unknown."""
        # Finite is asked of the float32, not of the number as it came: -1e39 is one and is kept as -inf.
        narrowed = array("f", (math.nan if value is None else _within_float32(value) for value in values))
        unknown = tuple(at for at, value in enumerate(narrowed) if not math.isfinite(value))
        for at in unknown:
            narrowed[at] = 0.0
        return cls(_packed(narrowed), unknown)

    def __len__(self) -> int:
        return len(self.packed) // _WIDTH

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogprobRun) and (self.packed, self.unknown) == (other.packed, other.unknown)

    def __hash__(self) -> int:
        return hash((self.packed, self.unknown))

    def __repr__(self) -> str:
        return f"LogprobRun({len(self)}, {len(self.unknown)} unknown)"

    def __add__(self, other: LogprobRun) -> LogprobRun:
        shift = len(self)
        return LogprobRun(self.packed + other.packed, self.unknown + tuple(at + shift for at in other.unknown))

    def slice(self, start: int, end: int) -> LogprobRun:
        """Values [start, end), both non-negative."""
        inside = tuple(at - start for at in self.unknown if start <= at < end)
        return LogprobRun(self.packed[start * _WIDTH : end * _WIDTH], inside)

    def tolist(self) -> list[float | None]:
        """The values, None where unknown."""
        values = array("f", self.packed)
        if _SWAP:
            values.byteswap()
        out: list[float | None] = list(values)
        for at in self.unknown:
            out[at] = None
        return out


class PolicySpan(msgspec.Struct, frozen=True, array_like=True):
    """Ids [start_S, end_S) of a completion that one version of the weights sampled."""

    label: str
    """What the engine calls that version."""
    start_S: int
    end_S: int


class SegmentKind(enum.StrEnum):
    """Who put a token where it stands."""

    PROMPT = "prompt"
    """Rendered before the first sampled token."""
    OBSERVATION = "observation"
    """Rendered later, from what the client or a tool said."""
    SCAFFOLD = "scaffold"
    """Put there by template or bridge: role headers, generation prompt, newline after a stop, synthetic close."""
    SAMPLED = "sampled"
    """Drawn by the engine under this very prefix, the stop token included."""
    REPLAYED = "replayed"
    """Drawn by the engine under another prefix: context here, never trained."""


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """Ids [start, end) of one run, all of one kind."""

    start: int
    end: int
    kind: SegmentKind


def tile(pieces: Iterable[tuple[int, SegmentKind]]) -> tuple[Segment, ...]:
    """Segments from (length, kind) pieces in order; empty pieces vanish, equal neighbours join."""
    out: list[Segment] = []
    at = 0
    for length, kind in pieces:
        if length == 0:
            continue
        if out and out[-1].kind is kind:
            out[-1] = Segment(out[-1].start, at + length, kind)
        else:
            out.append(Segment(at, at + length, kind))
        at += length
    return tuple(out)


def tiling_fault(segments: Sequence[Segment], length: int) -> str | None:
    """What is wrong with a tiling of [0, length), as a sentence; None if it is right."""
    at = 0
    for segment in segments:
        if segment.start != at or segment.end <= segment.start:
            return f"gap, overlap or empty segment at token {at}"
        at = segment.end
    return None if at == length else f"segments cover {at} of {length} tokens"


class Vocabulary(Protocol):
    """What the rooms without a tokenizer need to know about ids."""

    @property
    def size(self) -> int:
        """Number of ids; every valid id is below it."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that an id stands for in text; a special token gives its own name."""
        ...

    def is_special(self, token_id: int) -> bool:
        """Whether an id is a control token, which engines hide from text."""
        ...
