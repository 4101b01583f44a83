from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.packed import all_finite, bounds, float_array, id_array


def test_ids_are_an_arrow_array_over_the_same_bytes():
    assert id_array(IdRun.of([1, -2, 3])).to_pylist() == [1, -2, 3]


@given(st.lists(st.none() | st.floats(-9, 0, width=32), max_size=20))
def test_unknown_entries_are_nulls(values):
    run = LogprobRun.of(values)
    assert float_array(run.packed, run.unknown).to_pylist() == values


def test_bounds_leave_out_nulls_and_are_absent_without_values():
    assert bounds(float_array(struct.pack("<3f", 9.0, -1.0, -2.0), (0,))) == (-2.0, -1.0)
    assert bounds(id_array(IdRun())) is None


def test_one_infinity_or_nan_is_enough():
    assert all_finite(b"")
    assert all_finite(struct.pack("<2f", 1.0, -1.0))
    assert not all_finite(struct.pack("<2f", 1.0, float("-inf")))
    assert not all_finite(struct.pack("<2f", float("nan"), 1.0))
