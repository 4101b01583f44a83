"""The spellings of Google's JSON: `systemInstruction` is `system_instruction`, and of a list `[x]` is `x`.

Source: the JSON mapping of protocol buffers, which Google's servers apply; Google's own examples for curl use both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import final

import msgspec
from msgspec import Raw, inspect

from turnstile.protocols.json_body import Fields, fields_of, read_json

_CAPITAL = re.compile("[A-Z]")
_OPENS_LIST = b"["
_OPENS_OBJECT = b"{"

_items_decoder: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])


class Names(msgspec.Struct, frozen=True):
    """The members of an object, by their names in camel case, and what is known of each one's own."""

    members: Mapping[str, Names]
    is_list: bool = False
    """Whether such objects stand in a list."""


_LEAF = Names({})


def camel_case(name: str) -> str:
    """`max_output_tokens` as `maxOutputTokens`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def names_of(kind: type[msgspec.Struct]) -> Names:
    """What there is to spell in a struct that is renamed to camel case, at any depth."""
    described = inspect.type_info(kind)
    assert isinstance(described, inspect.StructType)
    return _names(described)


def _names(kind: inspect.Type) -> Names:
    match kind:
        case inspect.StructType(fields=fields):
            return Names({field.encode_name: _names(field.type) for field in fields})
        case inspect.ListType(item_type=item):
            return Names(_names(item).members, is_list=True)
        case inspect.UnionType(types=types):
            return next((found for each in types if (found := _names(each)) != _LEAF), _LEAF)
        case _:
            return _LEAF


@final
class Spelling:
    """Brings bodies of one kind to one spelling."""

    def __init__(self, names: Names) -> None:
        """For bodies whose members are these."""
        self.names = names
        listed, others = _spelled_otherwise(names)
        ends = {name.rpartition("_")[2] for name in others}
        self._end = re.compile(rf'_(?:{"|".join(sorted(ends))})"\s*:'.encode())
        self._other = re.compile(rf'"(?:{"|".join(sorted(others))})"\s*:'.encode())
        self._alone = re.compile(rf'"(?:{"|".join(sorted(listed))})"\s*:\s*\{{'.encode())

    def applied(self, body: bytes) -> bytes:
        """A body in camel case, with lists where there are to be lists; what is not known stays as it was written.

        Raises: CallerError if it is no JSON object.
        """
        return msgspec.json.encode(_members(fields_of(body), self.names)) if self._differs(body) else body

    def _differs(self, body: bytes) -> bool:
        # Most bodies have the one spelling, and may be long: the end of a second spelling is found fastest.
        snake = self._end.search(body) is not None and self._other.search(body) is not None
        return snake or self._alone.search(body) is not None


def _spelled_otherwise(names: Names) -> tuple[set[str], set[str]]:
    """Names of lists, and the second spellings of all that have one."""
    listed: set[str] = set()
    others: set[str] = set()
    for name, inner in names.members.items():
        snake = _CAPITAL.sub(lambda found: f"_{found[0].lower()}", name)
        others |= {snake} - {name}
        listed |= {name} if inner.is_list else set()
        more_listed, more_others = _spelled_otherwise(inner)
        listed |= more_listed
        others |= more_others
    return listed, others


def _members(fields: Fields, names: Names) -> Fields:
    spelled: Fields = {}
    for name, value in fields.items():
        camel = name if name in names.members else camel_case(name)
        if camel in names.members:
            spelled[camel] = _value(value, names.members[camel])
        else:
            spelled[name] = value
    return spelled


def _value(value: Raw, names: Names) -> Raw:
    """A value of which only the known names are touched; whatever it is, it is the decoder that complains."""
    begins = bytes(value)[:1]
    if names.is_list and begins == _OPENS_LIST:
        return Raw(msgspec.json.encode([_object(item, names) for item in read_json(_items_decoder, value)]))
    if names.is_list and begins == _OPENS_OBJECT:
        return Raw(msgspec.json.encode([_object(value, names)]))
    return _object(value, names)


def _object(value: Raw, names: Names) -> Raw:
    if not names.members or bytes(value)[:1] != _OPENS_OBJECT:
        return value
    return Raw(msgspec.json.encode(_members(fields_of(value), names)))
