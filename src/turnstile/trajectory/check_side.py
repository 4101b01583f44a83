"""E601 to E603, E701 and E702: media and side arrays against the ids, and their bytes where those are at hand."""

from __future__ import annotations

import ast
import math
import re
from array import array
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import pairwise
from typing import TypeAlias

import msgspec

from turnstile.tokens import SegmentKind
from turnstile.trajectory.shapes import ArrayEntry, MediaEntry, Sequence
from turnstile.trajectory.violation import Fault

SideBytes: TypeAlias = Callable[[str, str], bytes | None]
"""(`media` or `arrays`, name of a file) -> its bytes; None if it is not there."""

_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_NPY_DTYPES = {"|u1": "uint8", "<i2": "int16", "<i4": "int32", "<i8": "int64", "<f4": "float32", "<f8": "float64"}
_SIZES = {"uint8": 1, "int16": 2, "int32": 4, "int64": 8, "float32": 4, "float64": 8}
_NPY_HEADER = re.compile(rb"\{.*\}\s*", re.DOTALL)


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
    kinds = {SegmentKind.PROMPT.value, SegmentKind.OBSERVATION.value, SegmentKind.REPLAYED.value}
    return any(
        segment.start <= entry.offset and entry.offset + entry.length <= segment.end and segment.kind in kinds
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
        rows = entry.end - entry.start + (1 if name == "kept_offsets" else 0)
        # Kept sets are ragged: their length stands in the offsets.
        if name != "kept_ids" and entry.shape[:1] != (rows,):
            yield Fault("E701", f"array {name}: expected {rows} rows, got shape {list(entry.shape)}", at)


def check_side_bytes(sequence: Sequence, at: int, side_bytes: SideBytes, missing: str) -> Iterator[Fault]:
    """E602, E701 and E702 on the bytes themselves. `missing` is the code for media bytes that are not there."""
    for number, entry in enumerate(sequence.media):
        found = side_bytes("media", f"{entry.sha256[:2]}/{entry.sha256}") if _is_hash(entry.sha256) else None
        if found is None:
            yield Fault(missing, f"media bytes of entry {number} missing", at, entry.offset)
        elif sha256(found).hexdigest() != entry.sha256:
            yield Fault("E602", f"media bytes of entry {number} changed", at, entry.offset)
    stored: dict[str, bytes] = {}
    for name, entry in sequence.arrays.items():
        found = side_bytes("arrays", f"{entry.sha256}.npy") if _is_hash(entry.sha256) else None
        fault = _array_fault(name, entry, found)
        if fault:
            yield Fault("E701", fault, at)
        elif found is not None:
            stored[name] = _npy_data(found)
    kept = [sequence.arrays[name].dtype for name in ("kept_ids", "kept_offsets") if name in stored]
    if kept == ["int32", "int32"]:
        yield from _check_kept(sequence, stored["kept_ids"], stored["kept_offsets"], at)


def _is_hash(text: str) -> bool:
    # The file's word becomes a path; anything but a hash could lead out of the folder.
    return re.fullmatch("[0-9a-f]{64}", text) is not None


class _NpyHeader(msgspec.Struct, frozen=True):
    descr: str
    fortran_order: bool
    shape: tuple[int, ...]


def _array_fault(name: str, entry: ArrayEntry, found: bytes | None) -> str:
    if found is None:
        return f"array {name}: its file is missing"
    if sha256(found).hexdigest() != entry.sha256:
        return f"array {name}: its file changed"
    try:
        header = msgspec.convert(ast.literal_eval(_npy_header(found).decode("latin-1")), _NpyHeader)
    except (ValueError, SyntaxError, msgspec.ValidationError):
        return f"array {name}: its file is no .npy of version 1"
    dtype = _NPY_DTYPES.get(header.descr, header.descr)
    if header.fortran_order or (dtype, header.shape) != (entry.dtype, entry.shape):
        return f"array {name}: expected {entry.dtype} {list(entry.shape)}, got {dtype} {list(header.shape)}"
    if len(_npy_data(found)) != math.prod(entry.shape) * _SIZES.get(dtype, 0):
        return f"array {name}: its file is cut short"
    return ""


def _npy_header(found: bytes) -> bytes:
    header = found[10 : 10 + int.from_bytes(found[8:10], "little")]
    if not found.startswith(_NPY_MAGIC) or not _NPY_HEADER.fullmatch(header):
        raise ValueError("no .npy header")
    return header


def _npy_data(found: bytes) -> bytes:
    return found[10 + int.from_bytes(found[8:10], "little") :]


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
