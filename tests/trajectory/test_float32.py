from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from turnstile.trajectory.float32 import Float32Run, shortest_float32


def test_a_run_is_little_endian_bytes_and_its_own_values_again():
    run = Float32Run.of([0.5, -2.0])
    assert (run.packed, len(run), run.tolist()) == (struct.pack("<2f", 0.5, -2.0), 2, [0.5, -2.0])


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float32_has_one_decimal_form_whatever_it_was_read_from(value):
    short = shortest_float32(value)
    assert struct.pack("<f", short) == struct.pack("<f", value)
    assert shortest_float32(short) == short


def test_a_temperature_reads_as_people_write_it():
    assert shortest_float32(struct.unpack("<f", struct.pack("<f", 0.7))[0]) == 0.7
