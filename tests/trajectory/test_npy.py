from __future__ import annotations

import io
from hashlib import sha256

import numpy
import pytest

from turnstile.trajectory.npy import DTYPE_BYTES, SideArray, array_entry, from_npy, to_npy
from turnstile.trajectory.shapes import ArrayEntry


@pytest.mark.parametrize("dtype", DTYPE_BYTES)
@pytest.mark.parametrize("shape", [(6,), (3, 2), (0, 4), ()])
def test_numpy_reads_what_is_written_and_writes_what_is_read(dtype, shape):
    values = numpy.arange(numpy.prod(shape, dtype=int), dtype=dtype).reshape(shape)
    array = SideArray(dtype, shape, values.tobytes())
    content = to_npy(array)
    assert numpy.array_equal(numpy.load(io.BytesIO(content)), values)
    assert numpy.load(io.BytesIO(content)).dtype == values.dtype
    assert (len(content) - values.nbytes) % 64 == 0
    theirs = io.BytesIO()
    numpy.save(theirs, values)
    assert from_npy(theirs.getvalue()) == array


def test_what_is_no_side_array_is_refused():
    with pytest.raises(ValueError, match="5 bytes are no int32"):
        to_npy(SideArray("int32", (2,), b"12345"))
    with pytest.raises(ValueError, match="not of dtype object"):
        to_npy(SideArray("object", (0,), b""))
    content = to_npy(SideArray("int32", (2, 2), bytes(16)))
    for damaged, problem in (
        (content[:-1], "is cut short"),
        (b"", "is no .npy of version 1"),
        (content.replace(b"\x01\x00", b"\x02\x00", 1), "is no .npy of version 1"),
        (content.replace(b"'shape'", b"'sh pe'"), "is no .npy of version 1"),
        (content.replace(b"False", b"True "), "is in Fortran's order"),
    ):
        with pytest.raises(ValueError, match=problem):
            from_npy(damaged)


def test_the_entry_of_an_array_is_read_off_its_file():
    content = to_npy(SideArray("uint8", (6, 2, 8), bytes(96)))
    name = sha256(content).hexdigest()
    assert array_entry(content, "tokens", 0, 6) == ArrayEntry(
        uri=f"{name}.npy", sha256=name, dtype="uint8", shape=(6, 2, 8), axis="tokens", start=0, end=6
    )
