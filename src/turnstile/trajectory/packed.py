"""Packed ids and floats as Arrow arrays, without a copy, for checks and columns that must not touch each number."""

# Arrow's stubs leave most element types open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from turnstile.tokens import IdRun


def id_array(ids: IdRun) -> pa.Int32Array:
    """int32[T] over the same bytes."""
    return cast(pa.Int32Array, pa.Array.from_buffers(pa.int32(), len(ids), [None, pa.py_buffer(ids.packed)]))


def float_array(packed: bytes, unknown: tuple[int, ...] = ()) -> pa.FloatArray:
    """(float32 or null)[S] over the same bytes; null at the sorted indices `unknown`."""
    length = len(packed) // 4
    known = pa.py_buffer(_known_bits(length, unknown)) if unknown else None
    return cast(pa.FloatArray, pa.Array.from_buffers(pa.float32(), length, [known, pa.py_buffer(packed)]))


def all_finite(packed: bytes) -> bool:
    """Whether every float32 in `packed` is a finite number."""
    # A sum of float32 cannot leave float64, so it is finite exactly if they all are.
    total = cast("float | None", pc.sum(float_array(packed)).as_py())
    return total is None or math.isfinite(total)


def bounds(values: pa.Int32Array | pa.FloatArray) -> tuple[float, float] | None:
    """The lowest and the highest value that is neither null nor NaN; None if there is none."""
    found = pc.min_max(values)
    low, high = cast("float | None", found["min"].as_py()), cast("float | None", found["max"].as_py())
    return None if low is None or high is None else (low, high)


def _known_bits(length: int, unknown: tuple[int, ...]) -> bytes:
    # Arrow's validity bitmap: one bit a value, least significant first.
    bits = bytearray(b"\xff" * ((length + 7) // 8))
    for at in unknown:
        bits[at // 8] &= ~(1 << at % 8)
    return bytes(bits)
