from __future__ import annotations

import pyarrow as pa
import pytest

from turnstile.trajectory.arrow_lists import null_indices, numbers, values_of

COLUMNS = [
    pa.array([1, None, -3, 4], pa.int64()),
    pa.array([1, 2, 3], pa.int32()),
    pa.array([0.5, None, -2.0], pa.float32()),
    pa.array([0.1, 0.2], pa.float64()),
    pa.array(["agent", None, "agent", "", "é"]),
    pa.array([None, None], pa.string()),
    pa.array([True, None, False]),
    pa.array([], pa.int64()),
    pa.array([], pa.string()),
    pa.array([None, "x"], pa.large_string()),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_a_column_gives_the_values_that_arrow_gives(column):
    assert values_of(column) == column.to_pylist()
    assert values_of(column.slice(1)) == column.slice(1).to_pylist()
    assert null_indices(column) == [at for at, value in enumerate(column.to_pylist()) if value is None]


def test_numbers_of_a_slice_are_its_own():
    assert numbers(pa.array([1, 2, 3, 4], pa.int32()).slice(1, 2)) == [2, 3]
