"""E601 to E603, E701 and E702: media and side arrays against the ids, and their bytes where those are at hand."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import pairwise
from typing import TypeAlias

from turnstile.tokens import SegmentKind
from turnstile.trajectory.npy import SideArray, from_npy
from turnstile.trajectory.shapes import ArrayEntry, MediaEntry, Sequence
from turnstile.trajectory.side_files import SideKind
from turnstile.trajectory.violation import Fault

SideBytes: TypeAlias = Callable[[SideKind, str], bytes | None]
"""(kind, hash) -> the bytes that lie beside the file under that hash; None if they are not there."""

_RESERVED = {
    "routed_experts": (("uint8", "int16"), "tokens", 3),
    "topk_ids": (("int32",), "sampled", 2),
    "topk_logprobs": (("float32",), "sampled", 2),
    "kept_ids": (("int32",), "sampled", 1),
    "kept_offsets": (("int32",), "sampled", 1),
}
"""Dtypes, axis and number of dimensions of the arrays whose names the format reserves."""


def check_media_runs(sequence: Sequence, at: int) -> Iterator[Fault]:
    """E601, E603: each entry's run of ids."""
    end = 0
    for number, entry in enumerate(sequence.media):
        last = entry.offset + entry.length
        if entry.offset < end or last > len(sequence.token_ids):
            yield Fault(
                "E601", f"media {number} is out of order, overlaps another or leaves the sequence", at, entry.offset
            )
        elif not _inside_context(sequence, entry):
            yield Fault("E601", f"media {number} overlaps a sampled token", at, entry.offset)
        end = max(end, last)
        if entry.num_tokens > entry.length:
            message = f"media {number} has {entry.num_tokens} embeddings for {entry.length} ids"
            yield Fault("E603", message, at, entry.offset)
        if entry.placeholder_id not in sequence.token_ids.slice(entry.offset, last).tolist():
            yield Fault("E603", f"run of media {number} does not hold the placeholder", at, entry.offset)


def _inside_context(sequence: Sequence, entry: MediaEntry) -> bool:
    elsewhere = {SegmentKind.SAMPLED.value, SegmentKind.SCAFFOLD.value}
    return any(
        segment.start <= entry.offset and entry.offset + entry.length <= segment.end and segment.kind not in elsewhere
        for segment in sequence.segments
    )


def check_array_shapes(sequence: Sequence, at: int) -> Iterator[Fault]:
    """E701, as far as the entries alone tell."""
    sampled = sum(segment.end - segment.start for segment, _ in sequence.sampled_segments())
    for name, entry in sequence.arrays.items():
        length = len(sequence.token_ids) if entry.axis == "tokens" else sampled
        if not entry.start <= entry.end <= length:
            yield Fault(
                "E701", f"array {name}: expected rows within [0, {length}), got [{entry.start}, {entry.end})", at
            )
        if name in _RESERVED:
            yield from _check_reserved(name, entry, at)
        rows = entry.end - entry.start + (1 if name == "kept_offsets" else 0)
        # Kept sets are ragged: their length stands in the offsets.
        if name != "kept_ids" and entry.shape[:1] != (rows,):
            yield Fault("E701", f"array {name}: expected {rows} rows, got shape {list(entry.shape)}", at)


def _check_reserved(name: str, entry: ArrayEntry, at: int) -> Iterator[Fault]:
    dtypes, axis, dimensions = _RESERVED[name]
    if entry.dtype not in dtypes or entry.axis != axis or len(entry.shape) != dimensions:
        expected = f"{' or '.join(dtypes)} of {dimensions} dimensions along {axis}"
        got = f"{entry.dtype} of {len(entry.shape)} along {entry.axis}"
        yield Fault("E701", f"array {name}: expected {expected}, got {got}", at)


class SideChecks:
    """E602, E701 and E702: the bytes beside one file. Media that many rollouts share are hashed once."""

    def __init__(self, side_bytes: SideBytes, missing: str) -> None:
        """`missing` is the code for media bytes that are not there."""
        self._side_bytes = side_bytes
        self._missing = missing
        self._media: dict[str, tuple[str, str] | None] = {}

    def check(self, sequence: Sequence, at: int) -> Iterator[Fault]:
        """What is wrong with the bytes that a sequence names."""
        for number, entry in enumerate(sequence.media):
            if entry.sha256 not in self._media:
                found = self._side_bytes(SideKind.MEDIA, entry.sha256)
                self._media[entry.sha256] = _media_fault(found, entry, self._missing)
            fault = self._media[entry.sha256]
            if fault is not None:
                yield Fault(fault[0], f"media bytes of entry {number} {fault[1]}", at, entry.offset)
        stored: dict[str, SideArray] = {}
        for name, entry in sequence.arrays.items():
            found = _array_fault(name, entry, self._side_bytes(SideKind.ARRAYS, entry.sha256))
            if isinstance(found, str):
                yield Fault("E701", found, at)
            else:
                stored[name] = found
        ids, offsets = stored.get("kept_ids"), stored.get("kept_offsets")
        if ids and offsets and ids.dtype == offsets.dtype == "int32":
            yield from _check_kept(sequence, ids.data, offsets.data, at)


def _media_fault(found: bytes | None, entry: MediaEntry, missing: str) -> tuple[str, str] | None:
    if found is None:
        return missing, "missing"
    return None if sha256(found).hexdigest() == entry.sha256 else ("E602", "changed")


def _array_fault(name: str, entry: ArrayEntry, found: bytes | None) -> SideArray | str:
    """The array itself, or what is wrong with it."""
    if found is None:
        return f"array {name}: its file is missing"
    if sha256(found).hexdigest() != entry.sha256:
        return f"array {name}: its file changed"
    try:
        array = from_npy(found)
    except ValueError as error:
        return f"array {name}: its file {error}"
    if (array.dtype, array.shape) != (entry.dtype, entry.shape):
        return f"array {name}: expected {entry.dtype} {list(entry.shape)}, got {array.dtype} {list(array.shape)}"
    return array


def _check_kept(sequence: Sequence, ids: bytes, offsets: bytes, at: int) -> Iterator[Fault]:
    kept, ends = array("i", ids), array("i", offsets)
    if list(ends) != sorted(ends) or ends[:1] != array("i", [0]) or ends[-1] != len(kept):
        yield Fault("E702", "kept_offsets do not divide kept_ids", at)
        return
    sampled = [
        token_id
        for segment, _ in sequence.sampled_segments()
        for token_id in sequence.token_ids.slice(segment.start, segment.end)
    ]
    for index, ((start, end), token_id) in enumerate(zip(pairwise(ends), sampled, strict=False)):
        if start < end and token_id not in kept[start:end]:
            yield Fault("E702", "sampled token outside its kept set", at, index)
