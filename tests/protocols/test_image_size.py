"""Sizes read off headers: of real files of each kind, of bombs, and of what is none."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.protocols.image_size import PixelSize, pixel_size

# 3 x 2 pixels each, written by hand after the formats' own descriptions.
JPEG_3X2 = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    b"\xff\xfe\x00\x04hi\xff\xff\xc2\x00\x0b\x08\x00\x02\x00\x03\x01\x01\x11\x00"
)
"""A comment, a fill byte and the header of a progressive frame."""


def gif(screen: tuple[int, int], frame: tuple[int, int, int, int], before: bytes = b"") -> bytes:
    return (
        b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + bytes(6) + before + b"," + struct.pack("<4H", *frame)
    )


def png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(header))


def webp(kind: bytes, data: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", 12 + len(data)) + b"WEBP" + kind + struct.pack("<I", len(data)) + data


FILES = {
    "png": (png(3, 2), "image/png"),
    "gif": (gif((3, 2), (0, 0, 3, 2)), "image/gif"),
    "gif with a delay": (gif((3, 2), (0, 0, 3, 2), b"!\xf9\x04\0\0\0\0\0"), "image/gif"),
    "webp, lossy": (webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", 3, 0x4002)), "image/webp"),
    "webp, lossless": (webp(b"VP8L", b"\x2f" + struct.pack("<I", (2 - 1) << 14 | (3 - 1))), "image/webp"),
    "webp, extended": (webp(b"VP8X", bytes(4) + b"\x02\0\0" + b"\x01\0\0"), "image/webp"),
    "jpeg": (JPEG_3X2, "image/jpeg"),
}


@pytest.mark.parametrize("name", FILES)
def test_the_header_of_each_kind_is_read(name: str) -> None:
    assert pixel_size(*FILES[name]) == PixelSize(3, 2)


@pytest.mark.parametrize("name", FILES)
def test_a_header_that_breaks_off_has_no_size(name: str) -> None:
    data, media_type = FILES[name]
    found = [pixel_size(data[:length], media_type) for length in range(len(data))]
    assert set(found) <= {None, PixelSize(3, 2)}
    assert found[: len(data) // 2] == [None] * (len(data) // 2)


def test_a_small_file_of_many_pixels_is_known_by_its_header() -> None:
    assert pixel_size(png(50_000, 50_000), "image/png") == PixelSize(50_000, 50_000)


def test_a_frame_that_is_larger_than_its_screen_counts() -> None:
    assert pixel_size(gif((1, 1), (5, 0, 60_000, 50_000)), "image/gif") == PixelSize(60_005, 50_000)


def test_a_frame_header_is_found_behind_bytes_that_decoders_skip() -> None:
    data = JPEG_3X2.replace(b"\xff\xfe\x00\x04hi", b"\xff\xfe\x00\x04hijunk")
    assert pixel_size(data, "image/jpeg") == PixelSize(3, 2)


@pytest.mark.parametrize("data", [png(0, 2), png(3, 0)])
def test_no_pixels_are_no_size(data: bytes) -> None:
    assert pixel_size(data, "image/png") is None


def test_a_scan_before_any_frame_has_no_size() -> None:
    assert pixel_size(b"\xff\xd8\xff\xda\x00\x02" + JPEG_3X2[2:], "image/jpeg") is None


def test_an_unknown_kind_has_no_size() -> None:
    assert pixel_size(png(3, 2), "image/bmp") is None


@given(st.sampled_from(sorted({kind for _, kind in FILES.values()})), st.binary(max_size=400))
def test_any_bytes_have_a_size_or_none(media_type: str, data: bytes) -> None:
    starts = {
        "image/jpeg": b"\xff\xd8\xff", "image/png": b"\x89PNG\r\n\x1a\n",
        "image/gif": b"GIF89a", "image/webp": b"RIFF\0\0\0\0WEBP",
    }  # fmt: skip
    size = pixel_size(starts[media_type] + data, media_type)
    assert size is None or min(size) > 0


SLOW = {
    "segments": (b"\xff\xd8" + b"\xff\xfe\x00\x02" * 4_000_000, "image/jpeg"),
    "fill bytes": (b"\xff" * 16_000_000, "image/jpeg"),
    "zeros behind no marker": (b"\xff\xd8" + b"\xff\x00" * 8_000_000, "image/jpeg"),
    "blocks": (gif((3, 2), (0, 0, 3, 2), b"!\xf9" + b"\x01\x00" * 8_000_000), "image/gif"),
    "one block": (gif((3, 2), (0, 0, 3, 2), b"!\xf9" + b"\x01\x01" * 8_000_000), "image/gif"),
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.timeout(2)
def test_a_file_that_was_made_to_be_slow_has_no_size(name: str) -> None:
    assert pixel_size(*SLOW[name]) is None
