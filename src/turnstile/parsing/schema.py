"""JSON schemas: what kind of value each asks for, and grammars that let only such values through.

Of JSON Schema, what tools use: type (also a list), properties, required, additionalProperties, items, minItems,
maxItems, enum, const, anyOf, oneOf (read as anyOf), allOf, minLength, maxLength, $ref into the same document. Whatever
else a schema says is not enforced, and told by `Rules.left_out`; one that says nothing known allows any value.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import final

import msgspec

from turnstile.conversation import JsonText, ToolSpec
from turnstile.parsing.gbnf import Rules, either, literal
from turnstile.parsing.jsontext import JsonValue, parse, write
from turnstile.parsing.unenforced import MAX_REPEATS, left_out, left_out_of_any

_MAX_DEPTH = 32
"""Nesting that grammars follow; deeper values may be any."""


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
        for _ in range(_MAX_DEPTH):
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
        out: dict[str, JsonValue] = {key: value for key, value in place.node.items() if key != "allOf"}
        for part in parts:
            node = part.followed().node
            for key, value in node.items() if isinstance(node, dict) else ():
                out[key] = _both(out[key], value) if key in out else value
        return self.at(out)

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

    def kinds(self) -> frozenset[JsonKind]:
        """The kinds of value that are allowed; empty if the schema does not say."""
        found: set[JsonKind] = set()
        seen: set[str] = set()
        work: list[Schema] = [self]
        while work:
            place = work.pop()
            pointer = place.reference()
            if pointer and pointer in seen:
                continue
            seen.add(pointer)
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


def _both(one: JsonValue, other: JsonValue) -> JsonValue:
    if isinstance(one, dict) and isinstance(other, dict):
        return {**one, **other}
    if isinstance(one, list) and isinstance(other, list):
        return [*one, *(item for item in other if item not in one)]
    return other


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


_CHAR = r'[^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F])'
_INTEGER = '"-"? ("0" | [1-9] [0-9]{0,15})'
_SCALARS = {
    JsonKind.NULL: literal("null"),
    JsonKind.BOOLEAN: f"{literal('true')} | {literal('false')}",
    JsonKind.INTEGER: _INTEGER,
    JsonKind.NUMBER: _INTEGER + ' ("." [0-9]{1,16})? ([eE] [-+]? [0-9]{1,3})?',
}
"""Digits are bounded: a model that is held to a number may never find its end."""


@final
class JsonGrammar:
    """Rules for JSON that a schema accepts, spaced as templates print it: `, ` and `: `.

    Members come in the schema's order. An object that lists members has no others; one that lists none has any.
    """

    def __init__(self, rules: Rules, document: Schema) -> None:
        """Add to `rules`; references are looked up in `document`."""
        self._rules = rules
        self._document = document
        self._by_reference: dict[str, str] = {}
        self._unwritten: frozenset[str] = frozenset()
        self._depth = 0

    def root(self, hint: str) -> str:
        """The rule for the whole document; returns its name."""
        name = self._rules.reserve(f"{hint}-arguments")
        self._by_reference["#"] = name
        self._rules.define(name, self._opened("#", self._document))
        return name

    def value(self, schema: Schema) -> str:
        """An expression for one value of a schema."""
        return self._choice([schema])

    def _choice(self, schemas: list[Schema]) -> str:
        """An expression for a value of any of the schemas.

        One that leads back to a rule with nothing written in between adds no value, and llama.cpp refuses such left
        recursion: it is left out.
        """
        wanted = [schema for schema in schemas if schema.reference() not in self._unwritten]
        return either([self._one(schema) for schema in wanted]) if wanted else self._any()

    def _one(self, schema: Schema) -> str:
        pointer = schema.reference()
        if not pointer:
            return self._too_deep(schema) if self._depth > _MAX_DEPTH else self._followed(schema.merged())
        self._rules.leave_out(left_out_of_any(schema.node))
        if not pointer.startswith("#"):
            self._rules.leave_out(("$ref",))
        if pointer not in self._by_reference:
            name = self._rules.reserve(pointer)
            self._by_reference[pointer] = name
            target = schema.at(schema.pointed_to())
            self._rules.define(name, self._opened(pointer, target))
        return self._by_reference[pointer]

    def _too_deep(self, schema: Schema) -> str:
        self._rules.leave_out(left_out_of_any(schema.merged().node))
        return self._any()

    def _opened(self, pointer: str, target: Schema) -> str:
        before = self._unwritten
        self._unwritten = before | {pointer}
        expression = self.value(target)
        self._unwritten = before
        return expression

    def _inside(self, schema: Schema) -> str:
        """An expression for a value that something has been written before."""
        before, self._unwritten = self._unwritten, frozenset[str]()
        self._depth += 1
        expression = self.value(schema)
        self._depth -= 1
        self._unwritten = before
        return expression

    def _followed(self, schema: Schema) -> str:
        choices = schema.choices()
        if choices is not None:
            return either([literal(write(choice)) for choice in choices])
        options = schema.options()
        self._rules.leave_out(_unwritten_in(schema, options))
        if options:
            self._depth += 1
            expression = self._choice(options)
            self._depth -= 1
            return expression
        kinds = [kind for kind in JsonKind if kind in schema.kinds()]
        return either([self._kind(kind, schema) for kind in kinds]) if kinds else self._any()

    def _kind(self, kind: JsonKind, schema: Schema) -> str:
        match kind:
            case JsonKind.NULL | JsonKind.BOOLEAN | JsonKind.INTEGER | JsonKind.NUMBER:
                return self._rules.share(_SCALARS[kind], kind)
            case JsonKind.STRING:
                return self._string(schema)
            case JsonKind.ARRAY:
                return self._array(schema)
            case JsonKind.OBJECT:
                return self._object(schema)

    def _string(self, schema: Schema) -> str:
        char = self._rules.share(_CHAR, "char")
        return rf'"\"" {char}{_repeats(schema, "minLength", "maxLength")} "\""'

    def _array(self, schema: Schema) -> str:
        items = schema.get("items")
        item = self._rules.add("item", self._inside(schema.at(items))) if isinstance(items, dict) else self._any()
        least, most = _bounds(schema, "minItems", "maxItems")
        if most == 0:
            return literal("[]")
        more = f'(", " {item})' + _braces(max(least - 1, 0), None if most is None else most - 1)
        filled = f'"[" {item} {more} "]"'
        return filled if least else f"({literal('[]')} | {filled})"

    def _object(self, schema: Schema) -> str:
        members = schema.properties()
        if not members:
            return self._map(schema)
        required = schema.required()
        keys = list(members)
        # Built from the last member back: `rest` follows once something is written, `start` before anything is.
        rest, start = '""', '""'
        for key in reversed(keys):
            member = self._rules.add(f"member-{key}", f"{literal(write(key) + ': ')} {self._inside(members[key])}")
            if key in required:
                rest, start = f'", " {member} {rest}', f"{member} {rest}"
            else:
                rest, start = f'(", " {member})? {rest}', f"({member} {rest} | {start})"
            rest = self._rules.add(f"after-{key}", rest)
        return f'"{{" {start} "}}"'

    def _map(self, schema: Schema) -> str:
        allowed = schema.get("additionalProperties")
        if allowed is False:
            return literal("{}")
        value = self._inside(schema.at(allowed)) if isinstance(allowed, dict) else self._any()
        return self._pairs(value)

    def _pairs(self, value: str) -> str:
        char = self._rules.share(_CHAR, "char")
        pair = self._rules.share(rf'"\"" {char}* "\": " {value}', "pair")
        return f'"{{" ({pair} (", " {pair})*)? "}}"'

    def _any(self) -> str:
        """Any JSON value."""
        if "" not in self._by_reference:
            name = self._rules.reserve("any-value")
            self._by_reference[""] = name
            char = self._rules.share(_CHAR, "char")
            kinds = [
                self._pairs(name),
                f'"[" ({name} (", " {name})*)? "]"',
                rf'"\"" {char}* "\""',
                *(
                    self._rules.share(_SCALARS[kind], kind)
                    for kind in (JsonKind.NUMBER, JsonKind.BOOLEAN, JsonKind.NULL)
                ),
            ]
            self._rules.define(name, " | ".join(kinds))
        return self._by_reference[""]


def _unwritten_in(schema: Schema, options: list[Schema]) -> Iterable[str]:
    """The keywords of a place for which no rule is written: that of its options stands for it, if there are any."""
    if schema.kinds() and not options:
        return left_out(schema.node)
    typed = options and all(option.merged().own_kinds() for option in options)
    return (key for key in left_out_of_any(schema.node) if key != "type" or not typed)


def _bounds(schema: Schema, least_key: str, most_key: str) -> tuple[int, int | None]:
    least, most = schema.get(least_key), schema.get(most_key)
    least = least if isinstance(least, int) and 0 <= least <= MAX_REPEATS else 0
    most = most if isinstance(most, int) and least <= most <= MAX_REPEATS else None
    return least, most


def _repeats(schema: Schema, least_key: str, most_key: str) -> str:
    return _braces(*_bounds(schema, least_key, most_key))


def _braces(least: int, most: int | None) -> str:
    if least == 0 and most is None:
        return "*"
    return f"{{{least},{'' if most is None else most}}}"
