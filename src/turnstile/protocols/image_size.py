"""How many pixels an image has, read from its header alone: nothing is decoded, so no small file becomes a large one.

Sources: PNG (RFC 2083, 4.1.1), GIF89a (section 18), WebP container and VP8 and VP8L bitstreams (RFC 9649, 2.5 to 2.7
and 3.4; RFC 6386, 9.1), JPEG (ITU-T T.81, B.1 and B.2).
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple


class PixelSize(NamedTuple):
    """Width and height in pixels, as stored; a rotation that metadata asks for is not applied."""

    width: int
    height: int


_MOST_STEPS = 10_000
"""Segments or blocks before a header: 20 MiB of metadata are 320 segments, or a file that was made to be slow."""
_JPEG_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))
"""Markers without a length: TEM, RST0 to RST7, SOI."""
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a frame's header: SOF0 to SOF15, without DHT, JPG and DAC."""
_JPEG_MARKER = re.compile(rb"\xff[^\x00\xff]", re.DOTALL)
"""Fill bytes, which are 0xFF too, may stand before it; a zero behind 0xFF is no marker."""
_JPEG_END = frozenset((0xD9, 0xDA))
"""EOI and SOS: no frame header comes behind them that a decoder would go by."""


def pixel_size(data: bytes, media_type: str) -> PixelSize | None:
    """The size that an image's header states; None if it has none that can be read, or one of no pixels."""
    try:
        size = _read(data, media_type)
    except (struct.error, IndexError):
        return None
    return size if size is not None and size.width > 0 and size.height > 0 else None


def _read(data: bytes, media_type: str) -> PixelSize | None:
    match media_type:
        case "image/png":
            return PixelSize(*struct.unpack_from(">II", data, 16)) if data[12:16] == b"IHDR" else None
        case "image/gif":
            return _gif(data)
        case "image/webp":
            return _webp(data)
        case "image/jpeg":
            return _jpeg(data)
        case _:
            return None


def _gif(data: bytes) -> PixelSize | None:
    """The screen, or the first frame where that is larger: decoders make room for both."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + (3 << (1 + (flags & 7)) if flags & 0x80 else 0)
    in_extension = False
    for _ in range(_MOST_STEPS):
        if in_extension:
            in_extension = data[at] > 0
            at += 1 + data[at]
        elif data[at] == 0x21:
            in_extension = True
            at += 2
        elif data[at] == 0x2C:
            left, top, own_width, own_height = struct.unpack_from("<HHHH", data, at + 1)
            return PixelSize(max(width, left + own_width), max(height, top + own_height))
        else:
            return None
    return None


def _webp(data: bytes) -> PixelSize | None:
    match data[12:16]:
        case b"VP8X":
            width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
            return PixelSize(width, height) if len(data) >= 30 else None
        case b"VP8L" if data[20] == 0x2F:
            (bits,) = struct.unpack_from("<I", data, 21)
            return PixelSize(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        case b"VP8 " if data[23:26] == b"\x9d\x01\x2a":
            width, height = struct.unpack_from("<HH", data, 26)
            return PixelSize(width & 0x3FFF, height & 0x3FFF)
        case _:
            return None


def _jpeg(data: bytes) -> PixelSize | None:
    """The first frame's header, found from marker to marker."""
    at = 2
    for _ in range(_MOST_STEPS):
        # Decoders skip what stands between two segments, so a frame that hides behind it is found as they find it.
        found = _JPEG_MARKER.search(data, at)
        if found is None:
            return None
        marker, at = data[found.end() - 1], found.end()
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            return PixelSize(width, height)
        if marker in _JPEG_END:
            return None
        if marker not in _JPEG_ALONE:
            (length,) = struct.unpack_from(">H", data, at)
            at += max(2, length)
    return None
