"""Side arrays as NumPy's own files, version 1: little-endian, C order. NumPy itself is not needed.

Source: numpy.lib.format, https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
import math
import re
from hashlib import sha256
from typing import Final

import msgspec

from turnstile.trajectory.shapes import ArrayEntry

_MAGIC: Final = b"\x93NUMPY\x01\x00"
_HEADER: Final = re.compile(rb"\{.*\}\s*", re.DOTALL)
_ALIGNED_BYTES: Final = 64
_DESCRIBED: Final = {
    "|u1": "uint8",
    "<i2": "int16",
    "<i4": "int32",
    "<i8": "int64",
    "<f4": "float32",
    "<f8": "float64",
}
_DESCRIPTIONS: Final = {dtype: description for description, dtype in _DESCRIBED.items()}
DTYPE_BYTES: Final = {"uint8": 1, "int16": 2, "int32": 4, "int64": 8, "float32": 4, "float64": 8}
"""Bytes of one value of each dtype that a side array may have."""


class SideArray(msgspec.Struct, frozen=True):
    """The values of one side array."""

    dtype: str
    """A key of `DTYPE_BYTES`; what another program wrote may have another."""
    shape: tuple[int, ...]
    data: bytes
    """Little-endian, C order."""


class _Header(msgspec.Struct, frozen=True):
    descr: str
    fortran_order: bool
    shape: tuple[int, ...]


def to_npy(array: SideArray) -> bytes:
    """An array as the bytes of its file.

    Raises: ValueError if the data is not as long as dtype and shape say, or a side array has no such dtype.
    """
    if array.dtype not in DTYPE_BYTES:
        raise ValueError(f"a side array is not of dtype {array.dtype}")
    if len(array.data) != math.prod(array.shape) * DTYPE_BYTES[array.dtype]:
        raise ValueError(f"{len(array.data)} bytes are no {array.dtype} {list(array.shape)}")
    fields = {"descr": _DESCRIPTIONS[array.dtype], "fortran_order": False, "shape": array.shape}
    header = repr(fields).encode()
    padded = header.ljust(-(len(_MAGIC) + 3 + len(header)) % _ALIGNED_BYTES + len(header)) + b"\n"
    return _MAGIC + len(padded).to_bytes(2, "little") + padded + array.data


def from_npy(content: bytes) -> SideArray:
    """The array that a file holds, whatever its dtype.

    Raises: ValueError if it is no .npy of version 1, is in Fortran's order, or is cut short.
    """
    start = 10 + int.from_bytes(content[8:10], "little")
    text = content[10:start]
    if not content.startswith(_MAGIC) or not _HEADER.fullmatch(text):
        raise ValueError("is no .npy of version 1")
    try:
        header = msgspec.convert(ast.literal_eval(text.decode("latin-1")), _Header)
    except (ValueError, SyntaxError, msgspec.ValidationError) as error:
        raise ValueError("is no .npy of version 1") from error
    if header.fortran_order:
        raise ValueError("is in Fortran's order")
    dtype = _DESCRIBED.get(header.descr, header.descr)
    if dtype in DTYPE_BYTES and len(content) - start != math.prod(header.shape) * DTYPE_BYTES[dtype]:
        raise ValueError("is cut short")
    return SideArray(dtype, header.shape, content[start:])


def array_entry(content: bytes, axis: str, start: int, end: int) -> ArrayEntry:
    """The entry of `arrays` for a file: rows for tokens, or sampled tokens, [start, end). Raises: ValueError."""
    array = from_npy(content)
    name_sha256 = sha256(content).hexdigest()
    return ArrayEntry(
        uri=f"{name_sha256}.npy",
        sha256=name_sha256,
        dtype=array.dtype,
        shape=array.shape,
        axis=axis,
        start=start,
        end=end,
    )
