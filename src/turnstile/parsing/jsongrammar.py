"""Grammars that let only such JSON through as a schema accepts.

Of JSON Schema, what tools use: type (also a list), properties, required, additionalProperties, items, minItems,
maxItems, enum, const, anyOf, oneOf (read as anyOf), allOf, minLength, maxLength, $ref into the same document. Whatever
else a schema says is not enforced, and told by `Rules.left_out`; one that says nothing known allows any value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from turnstile.parsing.gbnf import Rules, either, literal
from turnstile.parsing.jsontext import write
from turnstile.parsing.schema import MAX_DEPTH, JsonKind, Schema
from turnstile.parsing.unenforced import MAX_REPEATS, left_out, left_out_of_any

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
        self._opened_now = 0

    def root(self, hint: str) -> str:
        """The rule for the whole document; returns its name. Raises: CallerError `grammar_too_large`."""
        name = self._rules.reserve(f"{hint}-arguments")
        self._by_reference["#"] = name
        self._rules.define(name, self._opened("#", self._document))
        return name

    def value(self, schema: Schema) -> str:
        """An expression for one value of a schema. Raises: CallerError `grammar_too_large`."""
        return self._choice([schema])

    def _choice(self, schemas: list[Schema]) -> str:
        """An expression for a value of any of the schemas.

        One that leads back to a rule with nothing written in between adds no value, and llama.cpp refuses such left
        recursion: it is left out.
        """
        wanted = [schema for schema in schemas if schema.reference() not in self._unwritten]
        return either([self._one(schema) for schema in wanted]) if wanted else self._any()

    def _one(self, schema: Schema) -> str:
        self._rules.spend(schema.cost())
        pointer = schema.reference()
        if not pointer:
            return self._too_deep(schema) if self._depth > MAX_DEPTH else self._followed(schema.merged())
        self._rules.leave_out(left_out_of_any(schema.node))
        if not pointer.startswith("#"):
            self._rules.leave_out(("$ref",))
        if pointer not in self._by_reference:
            if self._opened_now >= MAX_DEPTH:
                return self._too_deep(schema)
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
        self._opened_now += 1
        expression = self.value(target)
        self._opened_now -= 1
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
        self._rules.spend(sum(option.cost() for option in options))
        self._rules.leave_out(_unwritten_in(schema, options))
        if options:
            self._depth += 1
            expression = self._choice(options)
            self._depth -= 1
            return expression
        named = schema.kinds()
        kinds = [kind for kind in JsonKind if kind in named]
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
        return rf'"\"" {char}{self._braces(*_bounds(schema, "minLength", "maxLength"))} "\""'

    def _array(self, schema: Schema) -> str:
        items = schema.get("items")
        item = self._rules.add("item", self._inside(schema.at(items))) if isinstance(items, dict) else self._any()
        least, most = _bounds(schema, "minItems", "maxItems")
        if most == 0:
            return literal("[]")
        more = f'(", " {item})' + self._braces(max(least - 1, 0), None if most is None else most - 1)
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

    def _braces(self, least: int, most: int | None) -> str:
        # An engine writes repetitions out.
        self._rules.spend((most or least) // 16)
        if least == 0 and most is None:
            return "*"
        return f"{{{least},{'' if most is None else most}}}"

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
    if not options and schema.kinds():
        return left_out(schema.node)
    typed = options and all(option.merged().own_kinds() for option in options)
    return (key for key in left_out_of_any(schema.node) if key != "type" or not typed)


def _bounds(schema: Schema, least_key: str, most_key: str) -> tuple[int, int | None]:
    least, most = schema.get(least_key), schema.get(most_key)
    least = least if isinstance(least, int) and 0 <= least <= MAX_REPEATS else 0
    most = most if isinstance(most, int) and least <= most <= MAX_REPEATS else None
    return least, most
