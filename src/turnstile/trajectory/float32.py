"""Float32 as the format keeps it: runs as bytes, single numbers as their shortest decimal form."""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Iterable
from typing import final


def shortest_float32(value: float) -> float:
    """The value with the fewest decimal digits that is the same float32 as `value`.

    One float32 has one such value, whether it was read from decimal text or from a float32 column.
    Raises: ValueError if it is finite and lies outside float32.
    """
    if not math.isfinite(value):
        return value
    if value == int(value) and abs(value) < 2**24:
        return float(value)
    try:
        packed = struct.pack("<f", value)
    except OverflowError as error:
        raise ValueError(f"{value} is no float32") from error
    exact: float = struct.unpack("<f", packed)[0]
    for digits in range(6, 9):
        short = float(f"{exact:.{digits}g}")
        if struct.pack("<f", short) == packed:
            return short
    return float(f"{exact:.9g}")


@final
class Float32Run:
    """An immutable run of finite float32 values, kept as little-endian bytes."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes = b"") -> None:
        """Wrap little-endian float32 bytes."""
        self.packed = packed

    @classmethod
    def of(cls, values: Iterable[float]) -> Float32Run:
        """Pack values."""
        floats = array("f", values)
        if sys.byteorder == "big":
            floats.byteswap()
        return cls(floats.tobytes())

    def __len__(self) -> int:
        return len(self.packed) // 4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Float32Run) and self.packed == other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def __repr__(self) -> str:
        return f"Float32Run({len(self)})"

    def tolist(self) -> list[float]:
        """The values as Python floats."""
        floats = array("f", self.packed)
        if sys.byteorder == "big":
            floats.byteswap()
        return floats.tolist()
