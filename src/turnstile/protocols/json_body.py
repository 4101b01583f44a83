"""Client JSON read straight into structs; what is wrong with it comes back as a field, a value and a remedy."""

from __future__ import annotations

import re
from typing import TypeAlias, TypeVar

import msgspec

from turnstile.conversation import JsonText
from turnstile.errors import CallerError

T = TypeVar("T")

Fields: TypeAlias = dict[str, msgspec.Raw]
"""The members of a JSON object, not yet read."""

_FIELDS: msgspec.json.Decoder[Fields] = msgspec.json.Decoder(Fields)
_ITEMS: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])
_STRING: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)

_SHOWN_CHARACTERS = 40
_READ_BYTES = 4 * _SHOWN_CHARACTERS + 4
_KINDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
# The sentences of msgspec 0.19 to 0.23, which are part of no contract: what does not fit is shown as it is.
_LOCATED = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_WRONG_KIND = re.compile(r"Expected `(?P<kinds>[^`]+)`, got `[^`]+`")
_OUT_OF_BOUNDS = re.compile(r"Expected `(?P<kind>[^`]+)`(?P<of> of length)? (?P<sign>>=|<=|>|<) (?P<bound>\S+)")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]")
_HIGH, _LOW, _HEX = rb"\\u[dD][89abAB]", rb"\\u[dD][c-fC-F]", rb"[0-9a-fA-F]{2}"
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)" + _HIGH + _HEX + rb"(?!" + _LOW + rb")|(?<!" + _HIGH + rb"..)(?<!\\)" + _LOW + _HEX
)


def check_text(body: bytes) -> None:
    """See that a body can be JSON at all.

    Raises: CallerError if it is empty or not UTF-8.
    """
    if not body.strip():
        raise CallerError("The request body is empty", "Send a JSON object", code="invalid_json")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        problem = f"The request body is not UTF-8 at byte {error.start}"
        raise CallerError(problem, "Encode the JSON as UTF-8", code="invalid_json") from None


def fields_of(body: bytes | msgspec.Raw, at: str = "") -> Fields:
    """The members of a JSON object by name, unread; the last of equal names counts.

    Raises: CallerError as `read_json` does.
    """
    return read_json(_FIELDS, body, at)


def read_json(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, at: str = "") -> T:
    """Read JSON into what a decoder makes.

    Args:
        decoder: says which form is accepted.
        body: JSON text in UTF-8.
        at: path of this value in the client's body; empty for the body itself.

    Raises: CallerError that names the field, what was expected and what was there.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_value(str(error), bytes(body), at) from None
    except msgspec.DecodeError as error:
        raise _malformed(str(error), bytes(body)) from None
    except RecursionError:
        raise CallerError(
            "The request body is nested too deeply", "Send JSON with less nesting", code="invalid_json", param=at
        ) from None


def wrong_value(path: str, expected: str, got: str = "") -> CallerError:
    """The error for a field whose value cannot be.

    Args:
        path: the field, such as `messages[3].content`; empty for the body itself.
        expected: what may stand there, such as `a string`.
        got: what stood there; empty if it was missing.
    """
    what = f"got {snippet(got)}" if got else "but it is missing"
    code = "invalid_value" if got else "missing_required_parameter"
    where = f"`{path}`" if path else "The request body"
    return CallerError(f"{where}: expected {expected}, {what}", f"Send {expected} there", code=code, param=path)


def snippet(text: str) -> str:
    """The beginning of a text, on one line, short enough for a message."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + "..."


def json_text(raw: msgspec.Raw) -> JsonText:
    """JSON as it was written."""
    return bytes(raw).decode().strip()


def string_or_json(raw: msgspec.Raw) -> str:
    """A JSON string's own text; of any other value the JSON as written; of null nothing."""
    written = json_text(raw)
    if written.startswith('"'):
        return _STRING.decode(written)
    return "" if written == "null" else written


def _wrong_value(message: str, body: bytes, at: str) -> CallerError:
    located = _LOCATED.fullmatch(message)
    what, inner = (located["what"], located["path"] or "") if located else (message, "")
    # Inside an object whose keys are the client's own, msgspec does not say which member it was.
    inner = inner.partition("[...]")[0]
    path = (at + inner).removeprefix(".")
    if missing := _MISSING.fullmatch(what):
        return wrong_value(f"{path}.{missing['name']}".removeprefix("."), "a value")
    value = _value_at(body, inner)
    if kind := _WRONG_KIND.fullmatch(what):
        names = [_KINDS.get(name, name) for name in kind["kinds"].split(" | ") if name != "null"]
        return wrong_value(path, " or ".join(names), value)
    if bounds := _OUT_OF_BOUNDS.fullmatch(what):
        expected = _KINDS.get(bounds["kind"], bounds["kind"]) + (" of length" if bounds["of"] else "")
        direction = "at most" if bounds["sign"].startswith("<") else "at least"
        return wrong_value(path, f"{expected} {direction} {bounds['bound'].removesuffix('.0')}", value)
    return CallerError(
        f"`{path}`: {what}, got {snippet(value)}", "Send a value in range", code="invalid_value", param=path
    )


def _value_at(body: bytes, path: str) -> str:
    """The JSON at a path as msgspec writes it; enough of it to be shown."""
    value: bytes | msgspec.Raw = body
    try:
        for step in _STEP.finditer(path):
            if (name := step["name"]) is not None:
                value = _FIELDS.decode(value)[name]
            else:
                value = _ITEMS.decode(value)[int(step["index"])]
    except (LookupError, msgspec.DecodeError, RecursionError):
        # The object has the member twice, and the faulty one is not the last; or what follows is not JSON.
        return "another value"
    return bytes(value)[:_READ_BYTES].decode(errors="replace")


def _malformed(message: str, body: bytes) -> CallerError:
    if half := _LONE_SURROGATE.search(body):
        return CallerError(
            f"The request body holds half of a surrogate pair at byte {half.start()}",
            "Cut text between characters, not inside one",
            code="invalid_json",
        )
    truncated = message == "Input data was truncated"
    detail = "it ends too early" if truncated else message.removeprefix("JSON is malformed: ")
    return CallerError(f"The request body is not JSON: {detail}", "Send a JSON object", code="invalid_json")
