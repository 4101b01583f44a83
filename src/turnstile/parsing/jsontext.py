"""JSON as the model wrote it: where a value begins and ends, so that its spelling can be kept."""

from __future__ import annotations

import json
import re
from typing import NoReturn, TypeAlias, cast

import msgspec

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"

_SPACE = re.compile(r"[ \t\n\r]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]"]', re.DOTALL)


class NotJson(ValueError):
    """The text is no JSON object; the message says why, as a phrase."""


class Member(msgspec.Struct, frozen=True):
    """One value of an object, and its text as it was written."""

    value: JsonValue
    text: str

    @property
    def is_string(self) -> bool:
        """Whether a string was written; numbers are kept as text too."""
        return self.text.startswith('"')


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(f"{name} is no JSON")


# Numbers stay text: nobody needs their value here, and Python limits the digits of an integer.
_decoder = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse_constant)


def _value(text: str, at: int) -> tuple[JsonValue, int]:
    try:
        return cast("tuple[JsonValue, int]", _decoder.raw_decode(text, at))
    except RecursionError:
        raise NotJson("it is nested too deeply") from None


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, char: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != char:
        raise NotJson(f"expected {char!r} at character {at}")
    return at + 1


def members(text: str) -> dict[str, Member]:
    """The members of a JSON object that is the whole text; of equal keys, the last.

    Raises: ValueError (json's own or NotJson) if the text is anything else.
    """
    out: dict[str, Member] = {}
    at = _skip(text, _expect(text, 0, "{"))
    if text[at : at + 1] == "}":
        at += 1
    else:
        at = _read_members(text, at, out)
    if _skip(text, at) != len(text):
        raise NotJson(f"text follows the object at character {at}")
    return out


def _read_members(text: str, at: int, out: dict[str, Member]) -> int:
    while True:
        _expect(text, at, '"')
        key, at = _value(text, _skip(text, at))
        start = _skip(text, _expect(text, at, ":"))
        value, at = _value(text, start)
        out[str(key)] = Member(value, text[start:at])
        at = _skip(text, at)
        if text[at : at + 1] != ",":
            return _expect(text, at, "}")
        at += 1


def ends_in_string(text: str) -> bool:
    """Whether a JSON text that breaks off does so inside a string."""
    return any(found.group() == '"' for found in _TOKEN.finditer(text))


def object_end(text: str, start: int) -> int | None:
    """Index behind the brace that closes the one at `start`; None if it is not there yet."""
    depth = 0
    for found in _TOKEN.finditer(text, start):
        match found.group():
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
                if depth == 0:
                    return found.end()
            case '"':
                return None
            case _:
                pass
    return None


def parse(text: str) -> JsonValue:
    """Any JSON value. Raises: ValueError if the text is none."""
    try:
        return cast("JsonValue", json.loads(text, parse_constant=_refuse_constant))
    except RecursionError:
        raise NotJson("it is nested too deeply") from None


def write(value: JsonValue) -> str:
    """A value as chat templates print it: `, ` and `: `, no escapes beyond need."""
    return json.dumps(value, ensure_ascii=False)
