from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.conversation import ToolSpec
from turnstile.parsing.gbnf import Rules
from turnstile.parsing.jsongrammar import JsonGrammar
from turnstile.parsing.schema import JsonKind, Schema, parameters


def accepts(machine, schema, *values):
    rules = Rules()
    grammar = machine(rules.render(JsonGrammar(rules, Schema.of(json.dumps(schema))).root("x")))
    return [grammar.accepts(value if isinstance(value, str) else json.dumps(value[0])) for value in values]


def test_required_members_must_and_others_may_be_there_in_order(machine):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": {"type": "boolean"}},
        "required": ["b"],
    }
    good = [{"b": None}, {"a": 1, "b": None}, {"b": None, "c": True}, {"a": -10, "b": None, "c": False}]
    bad = [{}, {"a": 1}, {"b": 1}, {"b": None, "a": 1}, {"a": 1.5, "b": None}, {"b": None, "d": 1}]
    assert accepts(machine, schema, *([value] for value in good)) == [True] * len(good)
    assert accepts(machine, schema, *([value] for value in bad)) == [False] * len(bad)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ["", 'a"\\\n\x07', "é😀"], [1, None]),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ["a", "ab"], ["", "abc"]),
        ({"type": "number"}, [0, -1.5, 1e30], ["1", True]),
        ({"type": ["integer", "null"]}, [3, None], ["x", 0.5]),
        ({"enum": ["a", 1, None, {"b": [1]}]}, ["a", 1, None, {"b": [1]}], ["b", 2]),
        ({"const": "x"}, ["x"], ["y"]),
        (
            {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
            ["x", [], [1, 2]],
            [["x"], 1],
        ),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3]]),
        ({"type": "array", "maxItems": 0}, [[]], [[1]]),
        ({"type": "array", "items": {"const": 1}, "minItems": 2}, [[1, 1], [1, 1, 1]], [[1]]),
        ({"type": "object"}, [{}, {"a": [{"b": None}]}], [[], "x"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{}, {"a": 1, "b": 2}], [{"a": "x"}]),
        ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
        ({"properties": {"a": {}}, "required": ["a"]}, [{"a": [1]}, {"a": None}], [{}, "x"]),
        ({"allOf": [{"properties": {"a": {"const": 1}}}, {"required": ["a"]}]}, [{"a": 1}], [{}, {"a": 2}]),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}}, [1], [2]),
        ({"$ref": "#/nowhere"}, [1, "x"], []),
        ({"$ref": "#"}, [1, "x"], []),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, [None], [1]),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {
                    "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]},
                    "b": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "array", "items": {"$ref": "#/$defs/a"}}]},
                },
            },
            [None, [], [None, [None]]],
            [1, [1]],
        ),
        ({"not": {"type": "string"}}, [1, {}], []),
        (True, [1, {}], []),
    ],
)
def test_a_schema_lets_its_values_through(machine, schema, good, bad):
    assert accepts(machine, schema, *([value] for value in good)) == [True] * len(good)
    assert accepts(machine, schema, *([value] for value in bad)) == [False] * len(bad)


def test_a_schema_may_refer_to_itself(machine):
    node = {
        "type": "object",
        "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["value"],
    }
    assert accepts(machine, node, [{"value": 1, "next": {"value": 2, "next": None}}], [{"value": 1, "next": 3}]) == [
        True,
        False,
    ]


def test_a_schema_nested_without_end_is_no_error(machine):
    schema = {"type": "integer"}
    for _ in range(100):
        schema = {"type": "array", "items": schema}
    assert accepts(machine, schema, "[[[]]]", "1") == [True, False]


SCALARS = {
    "integer": st.integers(-(10**12), 10**12),
    "string": st.text(max_size=5),
    "boolean": st.booleans(),
    "null": st.none(),
}


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_object_that_a_schema_accepts_is_let_through(machine, data):
    kinds = data.draw(
        st.dictionaries(st.text('aZ-"\\', max_size=4), st.sampled_from(sorted(SCALARS)), min_size=1, max_size=5)
    )
    required = [key for key in kinds if data.draw(st.booleans())]
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in kinds.items()},
        "required": required,
    }
    value = {
        key: data.draw(SCALARS[kind]) for key, kind in kinds.items() if key in required or data.draw(st.booleans())
    }
    assert accepts(machine, schema, json.dumps(value, ensure_ascii=data.draw(st.booleans()))) == [True]
    missing = {key: item for key, item in value.items() if key not in required}
    assert accepts(machine, schema, json.dumps(missing)) == [not required]


def test_a_choice_between_circles_ends(machine):
    schema = {"anyOf": [{"$ref": "#"}, {"$ref": "#/anyOf/0"}, {"$ref": "#"}]}
    assert Schema.of(json.dumps(schema)).kinds() == frozenset()
    assert accepts(machine, schema, "1") == [True]


def test_kinds_are_read_through_references_unions_and_choices():
    document = {"$defs": {"s": {"type": "string"}}}
    kinds = {
        name: Schema(node, document).kinds()
        for name, node in {
            "reference": {"$ref": "#/$defs/s"},
            "union": {"anyOf": [{"$ref": "#/$defs/s"}, {"type": "null"}]},
            "choices": {"enum": ["a", 1.5, [], {}, True]},
            "silent": {},
            "open": {"anyOf": [{"type": "null"}, {}]},
        }.items()
    }
    assert kinds == {
        "reference": {JsonKind.STRING},
        "union": {JsonKind.STRING, JsonKind.NULL},
        "choices": {JsonKind.STRING, JsonKind.NUMBER, JsonKind.ARRAY, JsonKind.OBJECT, JsonKind.BOOLEAN},
        "silent": frozenset(),
        "open": frozenset(),
    }


@pytest.mark.parametrize("declaration", ["{}", "no json", '{"function": {"name": "f", "parameters": {}}}', "[]"])
def test_a_tool_that_declares_nothing_takes_any_object(declaration):
    assert parameters(ToolSpec("f", declaration)).node == {"type": "object"}
