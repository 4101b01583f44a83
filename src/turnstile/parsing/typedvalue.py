"""A parameter that was written as plain text, as the JSON that its schema asks for."""

from __future__ import annotations

import json
import math
import re

from turnstile.parsing.jsontext import parse, write
from turnstile.parsing.schema import JsonKind

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_LOOSE_INTEGER = re.compile(r"[-+]?[0-9]{1,300}")


def json_text(text: str, kinds: frozenset[JsonKind]) -> str:
    """The first reading that fits one of the kinds, most special kind first; else a string.

    A declared string is taken word for word, `null` too: only a parameter that may be something else is read as it.
    Templates print Python's `True` and `None`, so models write them.
    """
    if not kinds or kinds == frozenset({JsonKind.STRING}):
        return write(text)
    for kind in JsonKind:
        if kind in kinds and (read := _read_as(text.strip(), kind)):
            return read
    return write(text)


def _read_as(text: str, kind: JsonKind) -> str:
    """The text as JSON of one kind; empty if it is none."""
    match kind:
        case JsonKind.NULL:
            return "null" if text.lower() in ("null", "none") else ""
        case JsonKind.BOOLEAN:
            return text.lower() if text.lower() in ("true", "false") else ""
        case JsonKind.INTEGER:
            return _integer(text)
        case JsonKind.NUMBER:
            return _number(text)
        case JsonKind.OBJECT | JsonKind.ARRAY:
            return _container(text, kind)
        case JsonKind.STRING:
            return ""


def _integer(text: str) -> str:
    if _INTEGER.fullmatch(text):
        return text
    return str(int(text)) if _LOOSE_INTEGER.fullmatch(text) else ""


def _number(text: str) -> str:
    if _NUMBER.fullmatch(text):
        return text
    try:
        value = float(text)
    except ValueError:
        return ""
    return json.dumps(value) if math.isfinite(value) else ""


def _container(text: str, kind: JsonKind) -> str:
    try:
        value = parse(text)
    except ValueError:
        return ""
    fits = isinstance(value, dict) if kind is JsonKind.OBJECT else isinstance(value, list)
    return text if fits else ""
