from __future__ import annotations

import json

import pytest

from turnstile.conversation import Call, JsonSchema, NamedTool, ToolMode, ToolSpec
from turnstile.generation import Opening
from turnstile.parsing.formats import by_name
from turnstile.parsing.gbnf import Rules
from turnstile.parsing.grammar import constraint_for
from turnstile.parsing.jsongrammar import JsonGrammar
from turnstile.parsing.schema import Schema
from turnstile.parsing.unenforced import left_out, left_out_of_any, left_out_of_text


def not_enforced(schema):
    rules = Rules()
    JsonGrammar(rules, Schema.of(json.dumps(schema))).root("x")
    return rules.left_out


def member(schema):
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "keywords"),
    [
        ({"type": "string", "pattern": "^a", "format": "date", "title": "A", "default": "a"}, ("format", "pattern")),
        ({"type": "integer", "minimum": 0, "exclusiveMaximum": 9, "multipleOf": 2},
         ("exclusiveMaximum", "minimum", "multipleOf")),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, ("uniqueItems",)),
        ({"type": "array", "items": {"type": "number", "maximum": 1}}, ("maximum",)),
        ({"type": "array", "items": [{"type": "integer"}]}, ("items",)),
        ({"type": "string", "maxLength": 1001, "minLength": 1000}, ("maxLength",)),
        ({"type": "object", "additionalProperties": {"type": "string", "pattern": "a"}}, ("pattern",)),
        ({"type": "object", "required": ["b"]}, ("required",)),
        ({"anyOf": [{"type": "string", "format": "uri"}, {"type": "null"}]}, ("format",)),
        ({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
         ("properties", "required", "type")),
        ({"type": ["string", "integer"], "anyOf": [{"type": "string"}, {"type": "integer"}]}, ()),
        ({"minLength": 3, "required": ["a"]}, ("minLength", "required")),
        ({"$ref": "#/$defs/d", "minItems": 1, "$defs": {"d": {"type": "array"}}}, ("minItems",)),
        ({"$ref": "https://example.com/s.json"}, ("$ref",)),
        ({"not": {"type": "null"}}, ("not",)),
    ],
)  # fmt: skip
def test_each_keyword_without_a_rule_is_named_wherever_it_stands(schema, keywords):
    assert not_enforced(schema) == keywords
    assert not_enforced(member(schema)) == keywords


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 1, "maxLength": 9, "description": "A"},
        {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2, "uniqueItems": False},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
        {"type": "object", "additionalProperties": True, "minProperties": 0, "unevaluatedProperties": True},
        {"type": "integer", "exclusiveMinimum": False},
        {"enum": ["a", "b"], "pattern": "a|b"},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        {"$ref": "#/$defs/d", "title": "D", "$defs": {"d": {}}},
        {"items": {}, "properties": {}, "required": []},
        {},
    ],
)
def test_what_is_enforced_or_asks_for_nothing_is_not_named(schema):
    assert not_enforced(schema) == ()
    assert not_enforced(member(schema)) == ()


def test_a_member_that_is_called_like_a_keyword_is_none():
    names = {"pattern": {"type": "string"}, "format": {"type": "string"}, "not": {"type": "null"}}
    assert not_enforced({"type": "object", "properties": names}) == ()


def test_exclusive_minimum_zero_asks_for_something():
    assert list(left_out({"exclusiveMinimum": 0})) == ["exclusiveMinimum"]


def test_a_place_that_no_rule_is_written_for_loses_all_that_asks_for_something():
    node = {"type": "array", "items": {}, "minItems": 1, "additionalProperties": False, "minimum": 1}
    assert list(left_out_of_any(node)) == ["minimum", "type", "minItems", "additionalProperties"]
    assert list(left_out_of_any(True)) == list(left_out_of_text(False)) == []


def tool(**properties):
    parameters = {"type": "object", "properties": properties}
    function = {"name": "t", "parameters": parameters}
    return ToolSpec("t", json.dumps({"type": "function", "function": function}))


FREE_TEXT = {"type": "string", "maxLength": 3}


@pytest.mark.parametrize(
    ("format", "properties", "keywords"),
    [
        ("hermes", {"a": FREE_TEXT, "b": {"type": "integer", "minimum": 0}}, ("minimum",)),
        ("llama3_json", {"a": FREE_TEXT, "b": {"type": "integer", "minimum": 0}}, ("minimum",)),
        # Text parameters stand there as they are, up to the closing tag.
        ("qwen3_coder", {"a": FREE_TEXT, "b": {"type": "integer", "minimum": 0}}, ("maxLength", "minimum")),
        ("qwen3_coder", {"a": {"enum": ["a", 1]}, "b": {"enum": ["a", "b"]}}, ("enum",)),
    ],
)
def test_the_grammar_of_a_call_names_what_its_format_lets_pass(format, properties, keywords):
    call = Call("openai.chat", "m", (), tools=(tool(**properties),), tool_choice=NamedTool("t"))
    assert constraint_for(by_name(format, None), call, Opening.ANSWER).not_enforced == keywords


def test_only_schemas_that_the_grammar_is_made_of_are_asked():
    schema = JsonSchema('{"type":"object","properties":{"a":{"type":"string","pattern":"a"}}}')
    tools = (tool(b={"type": "integer", "minimum": 0}),)
    chosen = {ToolMode.NONE: ("pattern",), ToolMode.AUTO: ("minimum", "pattern")}
    for choice, keywords in chosen.items():
        call = Call("openai.chat", "m", (), tools=tools, tool_choice=choice, output=schema)
        assert constraint_for(by_name("hermes"), call, Opening.ANSWER).not_enforced == keywords
