"""Schemas made to be slow: a grammar is written in bounded work, or refused, and never followed without end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnstile.errors import CallerError
from turnstile.parsing.gbnf import MAX_CHARACTERS, Rules
from turnstile.parsing.jsongrammar import JsonGrammar
from turnstile.parsing.schema import JsonKind, Schema

DOUBLING = {"allOf": [{"$ref": "#/$defs/a"}]}
WIDE = {"enum": [f"value {number}" for number in range(5000)]}
BOMBS: dict[str, Any] = {
    "two of itself in each": {
        "$defs": {"a": {"type": "object", "properties": {"x": DOUBLING, "y": DOUBLING}}},
        "$ref": "#/$defs/a",
    },
    "two of itself as choices": {"$defs": {"a": {"anyOf": [DOUBLING, DOUBLING]}}, "$ref": "#/$defs/a"},
    "a wide one in each member": {
        "$defs": {"a": WIDE},
        "properties": {f"m{number}": {"allOf": [{"$ref": "#/$defs/a"}]} for number in range(500)},
    },
    "repetitions": {"properties": {f"m{number}": {"type": "string", "maxLength": 1000} for number in range(5000)}},
    "members of one name": {"properties": {chr(0x4E00 + number): {"type": "string"} for number in range(10_000)}},
}
ENDLESS: dict[str, Any] = {
    "itself as what it adds": {"allOf": [{"$ref": "#"}]},
    "itself as its choice": {"anyOf": [{"$ref": "#"}]},
    "itself as what its choice adds": {"anyOf": [{"allOf": [{"$ref": "#"}]}]},
    "a chain of references": {
        "$defs": {f"a{number}": {"$ref": f"#/$defs/a{number + 1}"} for number in range(3000)},
        "$ref": "#/$defs/a0",
    },
    "a chain of members": {
        "$defs": {
            f"a{number}": {"type": "object", "properties": {"n": {"$ref": f"#/$defs/a{number + 1}"}}}
            for number in range(3000)
        },
        "$ref": "#/$defs/a0",
    },
}  # fmt: skip


def written(schema: Any) -> str:
    rules = Rules()
    return rules.render(JsonGrammar(rules, Schema.of(json.dumps(schema))).root("x"))


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_schema_that_asks_for_too_much_is_refused_by_name(bomb: str) -> None:
    with pytest.raises(CallerError) as caught:
        written(BOMBS[bomb])
    assert (caught.value.code, caught.value.status) == ("grammar_too_large", 400)


@pytest.mark.parametrize("endless", ENDLESS)
def test_a_schema_that_leads_into_itself_has_a_grammar_that_ends(endless: str) -> None:
    assert len(written(ENDLESS[endless])) < 10_000


def test_a_document_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(CallerError) as caught:
        Rules().read("x" * MAX_CHARACTERS)
    assert caught.value.code == "grammar_too_large"


def test_kinds_are_looked_for_within_bounds_and_each_place_once() -> None:
    assert Schema.of(json.dumps({"anyOf": [{"allOf": [{"$ref": "#"}]}, {"type": "null"}]})).kinds() == {JsonKind.NULL}
    nested: Any = {"$defs": {"a": {"anyOf": [DOUBLING, {"type": "string"}]}}, "anyOf": [DOUBLING, {"type": "null"}]}
    assert Schema.of(json.dumps(nested)).kinds() <= {JsonKind.STRING, JsonKind.NULL}
    assert Schema.of(json.dumps({"anyOf": [{"type": "string"}, *[{"type": "null"}] * 30_000]})).kinds() == frozenset()


@pytest.mark.parametrize(
    ("values", "together"), [([["a", "b"], ["b", "c"]], ["a", "b", "c"]), ([["a"], ["c"]], ["a", "c"])]
)
def test_what_all_of_adds_is_put_together_in_linear_time(values: list[Any], together: list[Any]) -> None:
    schema = Schema.of(json.dumps({"allOf": [{"required": each} for each in values]}))
    assert schema.merged().get("required") == together
    many = {"allOf": [{"properties": {f"m{number}": {}}, "required": [f"m{number}"]} for number in range(5000)]}
    assert len(Schema.of(json.dumps(many)).required()) == 5000
