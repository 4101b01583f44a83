from __future__ import annotations

import pytest

from turnstile.conversation import (
    AnyText,
    Call,
    CallArity,
    JsonObject,
    JsonSchema,
    NamedTool,
    ToolMode,
)
from turnstile.errors import CallerError
from turnstile.generation import Free, GrammarConstraint, Opening, SchemaConstraint
from turnstile.parsing.formats import ENGINES_OWN, AnswerFormat, by_name
from turnstile.parsing.grammar import constraint_for

SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'
LS = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'
CAT = '<tool_call>\n{"name": "cat", "arguments": {"n": 3}}\n</tool_call>'
PLAIN = by_name("hermes", None)
THINKING = by_name("hermes")


@pytest.fixture
def call(ls, cat):
    def call(**fields):
        return Call(dialect="openai.chat", model="m", messages=(), **{"tools": (ls, cat), **fields})

    return call


@pytest.fixture
def grammar(machine):
    def grammar(constraint):
        assert isinstance(constraint, GrammarConstraint)
        return machine(constraint.gbnf)

    return grammar


@pytest.mark.parametrize("choice", [ToolMode.AUTO, ToolMode.NONE])
def test_nothing_asked_for_is_nothing_enforced(call, choice):
    assert constraint_for(THINKING, call(tool_choice=choice), Opening.ANSWER) == Free()


def test_calls_that_the_engine_reads_are_the_engine_s_to_enforce(call):
    for choice in (ToolMode.REQUIRED, NamedTool("cat")):
        assert constraint_for(ENGINES_OWN, call(tool_choice=choice), Opening.ANSWER) == Free()
    with pytest.raises(CallerError, match="which is not among the tools"):
        constraint_for(ENGINES_OWN, call(tool_choice=NamedTool("rm")), Opening.ANSWER)


def test_a_required_tool_leaves_calls_of_any_tool_and_nothing_else(call, grammar):
    accepted = grammar(constraint_for(PLAIN, call(tool_choice=ToolMode.REQUIRED), Opening.ANSWER))
    assert [accepted.accepts(text) for text in (LS, CAT, f"{LS}\n{CAT}\n{LS}")] == [True] * 3
    assert [accepted.accepts(text) for text in ("", "Hi", f"Hi {LS}", f"{LS}\nHi", LS.replace("ls", "rm"))] == [
        False
    ] * 5


def test_one_call_at_most_is_enforced(call, grammar):
    one = call(tool_choice=ToolMode.REQUIRED, arity=CallArity.ONE)
    accepted = grammar(constraint_for(PLAIN, one, Opening.ANSWER))
    assert [accepted.accepts(text) for text in (LS, CAT, f"{LS}\n{LS}")] == [True, True, False]


def test_a_named_tool_is_called_once(call, grammar):
    accepted = grammar(constraint_for(PLAIN, call(tool_choice=NamedTool("cat")), Opening.ANSWER))
    assert [accepted.accepts(text) for text in (CAT, LS, f"{CAT}\n{CAT}")] == [True, False, False]


def test_a_thinking_model_may_think_first(call, grammar):
    required = call(tool_choice=ToolMode.REQUIRED)
    accepted = grammar(constraint_for(THINKING, required, Opening.ANSWER))
    assert [accepted.accepts(text) for text in (LS, f"<think>\nhm <\n</think>\n\n{LS}", f"hm</think>{LS}")] == [
        True,
        True,
        False,
    ]
    accepted = grammar(constraint_for(THINKING, required, Opening.REASONING))
    assert [accepted.accepts(text) for text in (LS, f"hm\n</think>\n\n{LS}")] == [False, True]


def test_json_without_thinking_is_left_to_the_engines_schema_support(call):
    schema = call(output=JsonSchema(SCHEMA), tools=())
    assert constraint_for(PLAIN, schema, Opening.ANSWER) == SchemaConstraint(SCHEMA)
    anything = call(output=JsonObject(), tool_choice=ToolMode.NONE)
    assert constraint_for(PLAIN, anything, Opening.ANSWER) == SchemaConstraint('{"type":"object"}')


def test_json_of_a_thinking_model_comes_behind_its_thoughts(call, grammar):
    accepted = grammar(constraint_for(THINKING, call(output=JsonSchema(SCHEMA), tools=()), Opening.REASONING))
    assert [accepted.accepts(text) for text in ('{"a": 1}', 'hm</think>\n\n{"a": 1}', 'hm</think>{"b": 1}')] == [
        False,
        True,
        False,
    ]


def test_json_beside_tools_leaves_the_choice(call, grammar):
    accepted = grammar(constraint_for(PLAIN, call(output=JsonSchema(SCHEMA)), Opening.ANSWER))
    assert [accepted.accepts(text) for text in ('{"a": 1}', LS, "Hi")] == [True, True, False]


@pytest.mark.parametrize(
    ("fields", "format", "opening", "param"),
    [
        ({"tool_choice": ToolMode.REQUIRED, "output": JsonObject()}, PLAIN, Opening.ANSWER, "response_format"),
        ({"tool_choice": NamedTool("ls"), "output": JsonSchema(SCHEMA)}, PLAIN, Opening.ANSWER, "response_format"),
        ({"tool_choice": ToolMode.REQUIRED, "tools": ()}, PLAIN, Opening.ANSWER, "tool_choice"),
        ({"tool_choice": NamedTool("rm")}, PLAIN, Opening.ANSWER, "tool_choice"),
        ({"tool_choice": ToolMode.REQUIRED}, AnswerFormat(None, "none"), Opening.ANSWER, "tool_choice"),
        ({"tool_choice": ToolMode.REQUIRED}, PLAIN, Opening.PREFILL, "messages"),
        ({"output": JsonObject()}, PLAIN, Opening.PREFILL, "messages"),
        ({"output": JsonSchema("no json")}, THINKING, Opening.ANSWER, "response_format"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(call, fields, format, opening, param):
    with pytest.raises(CallerError) as refused:
        constraint_for(format, call(**fields), opening)
    assert refused.value.param == param


def test_a_continuation_without_constraints_is_fine(call):
    assert constraint_for(PLAIN, call(output=AnyText()), Opening.PREFILL) == Free()
