"""Arrow columns as lists of Python values: as `to_pylist` gives them, but a column at a time."""

# Arrow's stubs leave most element types open; what a column holds is only known from its type.
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from array import array
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

Column: TypeAlias = "pa.Array[Any]"

_CODES: Final = {pa.int32(): "i", pa.int64(): "q", pa.uint64(): "Q", pa.float32(): "f", pa.float64(): "d"}
"""Types whose buffers are read as they are, and the codes of `array` for them."""


def values_of(column: Column) -> list[object]:
    """The values of a column without structs or lists in it, None where there is none."""
    kind = column.type
    if kind in _CODES:
        return _with_nulls(list(numbers(column)), column)
    if pa.types.is_string(kind):
        encoded = cast("pa.DictionaryArray[Any, Any]", column.dictionary_encode())
        words = encoded.dictionary.to_pylist()
        # Under a null stands any code, so it is looked up like the others and replaced.
        return _with_nulls(
            [words[code] for code in numbers(encoded.indices)] if words else [None] * len(column), column
        )
    if pa.types.is_boolean(kind):
        return _with_nulls(list(map(bool, _bytes_of(column.cast(pa.uint8()), 1))), column)
    return list(column.to_pylist())


def numbers(column: Column) -> list[Any]:
    """The values of a column of 4- or 8-byte numbers; anything where there is none."""
    code = _CODES[column.type]
    values = array(code)
    values.frombytes(_bytes_of(column, values.itemsize))
    return values.tolist()


def null_indices(column: Column) -> list[int]:
    """Where a column has no value, in order."""
    return numbers(cast(Column, pc.indices_nonzero(column.is_null()))) if column.null_count else []


def _bytes_of(column: Column, width: int) -> memoryview:
    buffer = column.buffers()[1]
    data = memoryview(buffer if buffer is not None else b"").cast("B")
    return data[width * column.offset : width * (column.offset + len(column))]


def _with_nulls(values: list[object], column: Column) -> list[object]:
    for at in null_indices(column):
        values[at] = None
    return values
