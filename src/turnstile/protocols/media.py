"""Images in a client's body: base64 to bytes, bytes to a hash, each image once. Shared by all dialects."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable

import msgspec

from turnstile.conversation import Media
from turnstile.errors import CallerError
from turnstile.protocols.image_size import pixel_size
from turnstile.protocols.json_body import snippet, wrong_value

MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""Decoded; the largest that a hosted API of these dialects is known to take."""

_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,=]+=[^;,]*)*;base64,", re.IGNORECASE)
# Clients break long base64 into lines, and Google's write its URL-safe alphabet.
_STANDARD = bytes.maketrans(b"-_", b"+/")
_BLANKS = b" \t\r\n"
_SAME_TYPE = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


def image_from_url(url: str, path: str) -> Media:
    """The image in a `data:` URL, or one at an address that is still to be fetched, or refused (`refuse_remote`).

    Args:
        url: as the client wrote it.
        path: the field that holds it, such as `messages[3].content[1].image_url.url`.

    Raises: CallerError for a URL of another scheme than data, http and https, and as `image_from_base64` does.
    """
    head = _DATA_URL.match(url)
    if head is not None:
        return image_from_base64(url[head.end() :], head["type"], path)
    scheme = url.partition(":")[0].lower()
    if scheme in {"http", "https"}:
        named = Media("", "", b"", url=url, field=path)
        return msgspec.structs.replace(named, sha256=named.address_sha256)
    raise wrong_value(path, "a data URL, `data:image/png;base64,...`", url or '""')


def image_from_base64(encoded: str, declared_type: str, path: str) -> Media:
    """The image in a base64 text.

    Args:
        encoded: base64 in either alphabet; line breaks and missing padding are accepted.
        declared_type: the media type that the client states; empty if it states none.
        path: the field that holds the text.

    Raises: CallerError naming the field, if this is no base64, is too large, is no image of a known kind, or is of
        another kind than stated.
    """
    data = _decoded(encoded, path)
    found = _media_type(data)
    if not found:
        raise wrong_value(path, "a PNG, JPEG, GIF or WebP image", f"{len(data)} bytes that are none")
    declared = declared_type.strip().lower()
    if declared and _SAME_TYPE.get(declared, declared) != found:
        raise CallerError(
            f"`{path}`: the image is declared as {snippet(declared)}, but its bytes are {found}",
            f"Declare it as {found}",
            code="invalid_value",
            param=path,
        )
    return with_size(Media(hashlib.sha256(data).hexdigest(), found, data))


def refuse_remote(media: Iterable[Media]) -> None:
    """Refuse images that would have to be fetched.

    Raises: CallerError naming the first one's field.
    """
    for each in media:
        if each.url and not each.data:
            raise CallerError(
                f"`{each.field}`: the image at {told(each.url)} would have to be fetched, which is not done here",
                "Send the image itself in base64, or have its host allowed (--media-allow)",
                code="unsupported_value",
                param=each.field,
            )


def told(url: str) -> str:
    """An address as errors and records name it: without its query, in which signatures stand."""
    return snippet(url.partition("?")[0])


def image_from_bytes(data: bytes) -> Media | None:
    """An image with what its bytes say of its kind and size; None if it is of no known kind."""
    found = _media_type(data)
    return with_size(Media(hashlib.sha256(data).hexdigest(), found, data)) if found else None


def with_size(media: Media) -> Media:
    """An image with the size that its header states."""
    size = pixel_size(media.data, media.media_type)
    return media if size is None else msgspec.structs.replace(media, width=size.width, height=size.height)


def distinct_media(media: Iterable[Media]) -> tuple[Media, ...]:
    """Each image once, in order of first appearance."""
    return tuple({each.sha256: each for each in media}.values())


def _decoded(encoded: str, path: str) -> bytes:
    if len(encoded) > 2 * MAX_IMAGE_BYTES:
        raise _too_large(path)
    try:
        written = encoded.encode("ascii").translate(_STANDARD, _BLANKS).rstrip(b"=")
        data = base64.b64decode(written + b"=" * (-len(written) % 4), validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise wrong_value(path, "an image in base64", encoded) from None
    if len(data) > MAX_IMAGE_BYTES:
        raise _too_large(path)
    return data


def _too_large(path: str) -> CallerError:
    problem = f"`{path}`: the image has more than {MAX_IMAGE_BYTES} bytes"
    return CallerError(problem, "Send a smaller image", code="invalid_value", param=path)


def _media_type(data: bytes) -> str:
    """What the first bytes say that it is; empty if it is no image of a known kind."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return ""
