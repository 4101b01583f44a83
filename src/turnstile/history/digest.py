"""Digests: the chained keys under which prefixes are held, and the digest of a request's body.

`key[0]` stands for the head, `key[i]` for the first i messages: one hash over `key[i-1]` and the content of
message i, so that a turn hashes only what it adds. The content of an answer leaves out what clients seldom bring
back (reasoning, ids of calls, whitespace around the text): equal keys say where to look, `equality` decides.
"""

from __future__ import annotations

import hashlib
from typing import TypeAlias, cast

import msgspec

from turnstile.conversation import Call, CallKind, Image, JsonText, Message, RetryMark, Role, Text

Key: TypeAlias = bytes
"""16 bytes that stand for a head and a run of messages."""

_KEY_BYTES = 16
_ROLE_BYTE = {Role.SYSTEM: b"s", Role.USER: b"u", Role.ASSISTANT: b"a", Role.TOOL: b"t"}
_NO_POSITION = -1


def _hash(content: bytes) -> Key:
    return hashlib.blake2b(content, digest_size=_KEY_BYTES).digest()


def _utf8(text: str) -> bytes:
    # A lone surrogate is legal in a JSON escape; identity must not fail on it.
    return text.encode("utf-8", "surrogatepass")


def _sized(piece: bytes) -> bytes:
    return len(piece).to_bytes(8, "little") + piece


def head_key(fingerprint: str) -> Key:
    """The key of a head with no message behind it."""
    return _hash(b"h" + _utf8(fingerprint))


def extended(key: Key, message: Message, position: int = _NO_POSITION) -> Key:
    """The key of a run of messages with one more behind it.

    Args:
        key: the run's key.
        message: the next message.
        position: on a tool message, which of the preceding answer's calls it answers (`equality.Pairing`).
    """
    return _hash(key + _content(message, position))


def weak(message: Message) -> Key:
    """What a message says, wherever it stands."""
    return _hash(_content(message, _NO_POSITION))


def _content(message: Message, position: int) -> bytes:
    said = _said(message, position)
    return b"i" + _sized(_image_places(message)) + said if message.images else said


def image_places(message: Message) -> tuple[tuple[int, str], ...]:
    """Each image of a message: how many characters of its text stand before it, and the hash of its bytes.

    In an answer, whose text may lose whitespace at its ends, only the order counts.
    """
    places: list[tuple[int, str]] = []
    before = 0
    for part in message.parts:
        match part:
            case Text(text=text):
                before += len(text)
            case Image(sha256=sha256):
                places.append((0 if message.role is Role.ASSISTANT else before, sha256))
    return tuple(places)


def _image_places(message: Message) -> bytes:
    return b"".join(at.to_bytes(8, "little") + _sized(_utf8(sha256)) for at, sha256 in image_places(message))


def _said(message: Message, position: int) -> bytes:
    match message.role:
        case Role.ASSISTANT:
            pieces = [b"a", _sized(_utf8(message.text.strip()))]
            for call in message.calls:
                pieces += (_sized(_utf8(call.name)), _sized(canonical_arguments(call.arguments)))
            return b"".join(pieces)
        case Role.TOOL:
            return b"t" + position.to_bytes(4, "little", signed=True) + _utf8(message.text)
        case Role.SYSTEM | Role.USER:
            return _ROLE_BYTE[message.role] + _utf8(message.text)


class Unreadable(msgspec.Struct, frozen=True):
    """A text that is no JSON value, or one with numbers that no double holds."""


class Readable(msgspec.Struct, frozen=True):
    """A JSON value with every number as a double."""

    value: object


def read_json(text: JsonText | msgspec.Raw) -> Readable | Unreadable:
    """The value of a JSON text."""
    try:
        return Readable(_with_doubles(msgspec.json.decode(text, type=object)))
    except (msgspec.DecodeError, OverflowError, RecursionError, UnicodeEncodeError):
        return Unreadable()


def read_arguments(arguments: JsonText) -> Readable | Unreadable:
    """The value of a call's arguments; `{}`, `null` and nothing at all are one."""
    if not arguments or arguments.isspace():
        return Readable({})
    read = read_json(arguments)
    return Readable({}) if read == Readable(None) else read


def canonical_json(value: object) -> bytes:
    """One spelling for a value that was read: keys sorted, numbers as doubles, no spaces."""
    return msgspec.json.encode(value, order="sorted")


def canonical_arguments(arguments: JsonText) -> bytes:
    """One spelling for all arguments of equal value; what is no JSON stands for itself."""
    match read_arguments(arguments):
        case Readable(value=value):
            return canonical_json(value)
        case Unreadable():
            return b"!" + _utf8(arguments)


def _with_doubles(value: object) -> object:
    match value:
        case bool() | None | str():
            return value
        case int() | float():
            # Adding 0.0 makes -0.0 and 0 one number.
            return float(value) + 0.0
        case list():
            return [_with_doubles(item) for item in cast("list[object]", value)]
        case dict():
            return {key: _with_doubles(item) for key, item in cast("dict[str, object]", value).items()}
        case _:
            raise TypeError(f"{type(value).__name__} is no JSON value")


def body_digest(call: Call) -> str:
    """Equal for two requests that mean the same; how they are delivered or repeated is left out.

    Strict on all that could change the answer: messages with the ids of their calls, tools, sampling, model,
    template arguments. Streaming and transport are not part of a `Call` at all. The bytes of images are left out:
    the messages hold their hashes. Whose call it is and which quirks it showed are left out too, and a line that a
    quirk removed is in no message any more: a retry may come with another one (docs/decisions/0018).
    """
    same = msgspec.structs.replace(
        call,
        retry=RetryMark(),
        agent_name="",
        unknown_fields=(),
        media=(),
        kind=CallKind.TURN,
        purpose="",
        parent_agent="",
        quirks=(),
    )
    # A tuple: a field that spells its default out must not differ from one that was left out.
    return hashlib.sha256(msgspec.msgpack.encode(msgspec.structs.astuple(same))).hexdigest()
