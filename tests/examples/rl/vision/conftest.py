"""Pictures as pixels, and Chromium where there is one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

import pytest

from vision import chromium


def _unfiltered(kind: int, line: bytearray, above: bytes, pixel: int) -> None:
    """A line of a PNG as it was before its filter (PNG specification, 9.2), in place."""
    for at in range(len(line)):
        left = line[at - pixel] if at >= pixel else 0
        corner = above[at - pixel] if at >= pixel else 0
        guess = left + above[at] - corner
        nearest = min((left, above[at], corner), key=lambda each: abs(guess - each))
        line[at] = (line[at] + (0, left, above[at], (left + above[at]) // 2, nearest)[kind]) & 255


def pixels_of(data: bytes) -> bytes:
    """Red, green, blue of each pixel of an 8-bit PNG, by rows."""
    at, width, pixel, packed = 8, 0, 3, b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, chunk = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, pixel = struct.unpack(">I", chunk[:4])[0], {2: 3, 6: 4}[chunk[9]]
        elif kind == b"IDAT":
            packed += chunk
        at += 12 + length
    raw, stride = zlib.decompress(packed), width * pixel
    above, found = bytes(stride), bytearray()
    for start in range(0, len(raw), stride + 1):
        line = bytearray(raw[start + 1 : start + 1 + stride])
        _unfiltered(raw[start], line, above, pixel)
        above = bytes(line)
        found += b"".join(above[each : each + 3] for each in range(0, stride, pixel))
    return bytes(found)


@pytest.fixture
def read_png() -> Callable[[bytes], bytes]:
    return pixels_of


@pytest.fixture(scope="session")
def tabs() -> Iterator[chromium.Tabs]:
    path = chromium.program()
    if path is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium-headless-shell)")
    opened = chromium.Tabs(path, 2)
    yield opened
    opened.close()
