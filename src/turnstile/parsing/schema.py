"""JSON schemas: what kind of value each place of one asks for.

A schema comes from an agent, and a few bytes of one may describe a value without end: whatever follows references
or `allOf` here is bounded, and says by `Schema.cost` how much it looks at.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable

import msgspec

from turnstile.conversation import JsonText, ToolSpec
from turnstile.parsing.jsontext import JsonValue, parse, write

MAX_DEPTH = 32
"""Nesting that grammars follow; deeper values may be any."""
_MAX_COST = 20_000
"""Of finding out the kinds of one place; of one that takes longer they are not known."""


class JsonKind(enum.StrEnum):
    """The kinds of JSON values, most special reading of a text first."""

    NULL = "null"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"


class Schema(msgspec.Struct, frozen=True):
    """A place in a schema document."""

    node: JsonValue
    root: JsonValue

    @classmethod
    def of(cls, text: JsonText) -> Schema:
        """A document's top. Raises: ValueError if the text is no JSON."""
        node = parse(text)
        return cls(node, node)

    def at(self, node: JsonValue) -> Schema:
        """Another place in the same document."""
        return Schema(node, self.root)

    def get(self, key: str) -> JsonValue:
        """A keyword's value; None if it is not there."""
        return self.node.get(key) if isinstance(self.node, dict) else None

    def children(self, key: str) -> list[Schema]:
        """The schemas that a keyword lists."""
        listed = self.get(key)
        return [self.at(node) for node in listed] if isinstance(listed, list) else []

    def properties(self) -> dict[str, Schema]:
        """Schemas of an object's members by name, in the document's order."""
        listed = self.merged().get("properties")
        return {key: self.at(node) for key, node in listed.items()} if isinstance(listed, dict) else {}

    def required(self) -> frozenset[str]:
        """Names of the members that must be there."""
        listed = self.merged().get("required")
        return frozenset(key for key in listed if isinstance(key, str)) if isinstance(listed, list) else frozenset()

    def reference(self) -> str:
        """The place that `$ref` points to; empty if there is none."""
        pointer = self.get("$ref")
        return pointer if isinstance(pointer, str) else ""

    def followed(self) -> Schema:
        """The place that `$ref` names, or this one; a schema of any value if the reference leads nowhere."""
        place = self
        for _ in range(MAX_DEPTH):
            pointer = place.reference()
            if not pointer:
                return place
            place = place.at(place.pointed_to())
        return self.at({})

    def pointed_to(self) -> JsonValue:
        """What `$ref` names; a schema of any value if it names nothing."""
        return _pointed_to(self.root, self.reference())

    def merged(self) -> Schema:
        """This place with its reference followed and what `allOf` adds put in."""
        place = self.followed()
        parts = place.children("allOf")
        if not parts or not isinstance(place.node, dict):
            return place
        found: dict[str, list[JsonValue]] = {key: [value] for key, value in place.node.items() if key != "allOf"}
        for part in parts:
            node = part.followed().node
            for key, value in node.items() if isinstance(node, dict) else ():
                found.setdefault(key, []).append(value)
        return self.at({key: _together(values) for key, values in found.items()})

    def cost(self) -> int:
        """How much there is to look at in this place: itself and what is listed in it."""
        node = self.merged().node
        values = node.values() if isinstance(node, dict) else ()
        return 1 + sum(len(value) for value in values if isinstance(value, list | dict))

    def choices(self) -> list[JsonValue] | None:
        """The only values allowed; None if they are not listed."""
        place = self.merged()
        if isinstance(place.node, dict) and "const" in place.node:
            return [place.node["const"]]
        listed = place.get("enum")
        return listed if isinstance(listed, list) and listed else None

    def string_choices(self) -> list[str]:
        """The only values allowed, if they are listed and all strings; else none."""
        listed = self.choices() or []
        strings = [choice for choice in listed if isinstance(choice, str)]
        return strings if len(strings) == len(listed) else []

    def kinds(self, spend: Callable[[int], None] | None = None) -> frozenset[JsonKind]:
        """The kinds of value that are allowed; empty if the schema does not say, or not within `_MAX_COST`.

        Args:
            spend: told the cost of each place that is looked at.
        """
        found: set[JsonKind] = set()
        # By what it is, not by its reference: what `allOf` adds may lead back to where it stands without one.
        seen: set[int] = set()
        work: list[Schema] = [self]
        left = _MAX_COST
        while work:
            place = work.pop()
            if id(place.node) in seen:
                continue
            seen.add(id(place.node))
            cost = place.cost()
            left -= cost
            if spend is not None:
                spend(cost)
            if left < 0:
                return frozenset()
            place = place.merged()
            own, options = place.own_kinds(), place.options()
            if not own and not options:
                return frozenset()
            found |= own
            work.extend(() if own else options)
        return frozenset(found)

    def own_kinds(self) -> frozenset[JsonKind]:
        """The kinds that this very place names, options left aside."""
        listed = self.choices()
        if listed is not None:
            return frozenset(_kind_of(value) for value in listed)
        said = self.get("type")
        named = frozenset(JsonKind(name) for name in _as_list(said) if isinstance(name, str) and name in _KIND_NAMES)
        return named or (frozenset({JsonKind.OBJECT}) if self.properties() else frozenset())

    def options(self) -> list[Schema]:
        """The schemas of which one must accept the value; empty if there is no choice."""
        return [*self.children("anyOf"), *self.children("oneOf")]


_KIND_NAMES = frozenset(kind.value for kind in JsonKind)


def _as_list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else [value]


def _together(values: list[JsonValue]) -> JsonValue:
    """One keyword's value out of several: members and items of all of them, or the last where they are neither."""
    last = values[-1]
    if len(values) == 1 or not isinstance(last, list | dict):
        return last
    alike = list(itertools.takewhile(lambda value: type(value) is type(last), reversed(values)))[::-1]
    if isinstance(last, dict):
        return {key: value for each in alike if isinstance(each, dict) for key, value in each.items()}
    items = (item for each in alike if isinstance(each, list) for item in each)
    # Equal items are written equally; looking for each among the others would take the square of the time.
    return list({write(item): item for item in items}.values())


def _pointed_to(root: JsonValue, pointer: str) -> JsonValue:
    """What a JSON pointer (RFC 6901) in a fragment names; a schema of any value if it names nothing."""
    node = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and key in node:
            node = node[key]
        elif isinstance(node, list) and key.isdecimal() and int(key[:9]) < len(node):
            node = node[int(key[:9])]
        else:
            return {}
    return node if pointer.startswith("#") else {}


_KINDS: dict[type, JsonKind] = {
    type(None): JsonKind.NULL,
    bool: JsonKind.BOOLEAN,
    int: JsonKind.INTEGER,
    float: JsonKind.NUMBER,
    str: JsonKind.STRING,
    list: JsonKind.ARRAY,
    dict: JsonKind.OBJECT,
}


def _kind_of(value: JsonValue) -> JsonKind:
    return _KINDS[type(value)]


def parameters(tool: ToolSpec) -> Schema:
    """The schema of a tool's arguments; of any object if the tool declares none."""
    any_object: JsonValue = {"type": "object"}
    try:
        function = Schema.of(tool.declaration).get("function")
    except ValueError:
        function = None
    node = function.get("parameters") if isinstance(function, dict) else None
    return Schema(node, node) if isinstance(node, dict) and node else Schema(any_object, any_object)
