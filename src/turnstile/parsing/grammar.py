"""What an engine may sample, where the client asked for calls or for JSON."""

from __future__ import annotations

from typing import assert_never

from turnstile.conversation import AnyText, Call, CallArity, JsonObject, JsonSchema, NamedTool, ToolMode, ToolSpec
from turnstile.errors import CallerError
from turnstile.generation import Constraint, Free, GrammarConstraint, Opening, SchemaConstraint
from turnstile.parsing.formats import AnswerFormat, ReasoningMarkers, tool_call_format
from turnstile.parsing.gbnf import Rules, either, literal
from turnstile.parsing.jsongrammar import JsonGrammar
from turnstile.parsing.schema import Schema

_GAP = r"[ \n]{0,3}"


def constraint_for(format: AnswerFormat, call: Call, opening: Opening) -> Constraint:
    """The constraint that a request puts on its answer.

    Required and named tools: an optional reasoning block, then calls and nothing else; a named tool is called once.
    JSON: after an optional reasoning block, the JSON and nothing else; where tools may be called too, calls or JSON.
    A plain JSON answer is left to the engine's own schema support; only reasoning or calls before it need a grammar.

    Calls that the engine's own parser reads are the engine's to enforce.

    Raises: CallerError for what cannot be enforced: required tools with JSON output, without tools or with a format
    that has no grammar, and any constraint on the continuation of a message; `grammar_too_large`.
    """
    match call.tool_choice, call.output:
        case ((ToolMode.AUTO | ToolMode.NONE), AnyText()):
            return Free()
        case ((ToolMode.REQUIRED | NamedTool()), (JsonObject() | JsonSchema())):
            raise CallerError(
                "`response_format` cannot be enforced together with a required tool call",
                "Leave out one of `response_format` and `tool_choice`",
                param="response_format",
            )
        case _:
            pass
    if opening is Opening.PREFILL:
        raise CallerError(
            "Neither JSON nor tool calls can be enforced while a message is being continued",
            "End the messages with a user or tool message, or leave out `response_format` and `tool_choice`",
            param="messages",
        )
    match call.output:
        case AnyText():
            return _required_calls(format, call, opening)
        case JsonObject():
            return _json('{"type":"object"}', format, call, opening)
        case JsonSchema(schema=schema):
            return _json(schema, format, call, opening)
        case _:
            assert_never(call.output)


def _required_calls(format: AnswerFormat, call: Call, opening: Opening) -> Constraint:
    tools = _choosable(call)
    if format.is_read_by_engine:
        # Who reads calls knows how they are written: the choice goes to the engine as it is (`Prompt.read_with`).
        return Free()
    if not format.has_syntax:
        raise CallerError(
            "This model's chat template has no tool-call format that can be enforced",
            "Use `tool_choice` `auto`, or serve with a template that has one",
            param="tool_choice",
        )
    rules = Rules()
    return _after_reasoning(rules, _calls(format, call, tools, rules), format.reasoning, opening)


def _choosable(call: Call) -> tuple[ToolSpec, ...]:
    if not call.tools:
        raise CallerError("`tool_choice` asks for a tool and there are none", "Send `tools`", param="tool_choice")
    match call.tool_choice:
        case NamedTool(name=name):
            named = tuple(tool for tool in call.tools if tool.name == name)
            if not named:
                raise CallerError(
                    f"`tool_choice` names `{name}`, which is not among the tools",
                    "Name one of `tools`",
                    param="tool_choice",
                )
            return named[:1]
        case ToolMode():
            return call.tools


def _calls(format: AnswerFormat, call: Call, tools: tuple[ToolSpec, ...], rules: Rules) -> str:
    """An expression for one call, or for several where the request, its choice and the format allow that."""
    syntax = tool_call_format(format.tool_calls)
    for tool in tools:
        rules.read(tool.declaration)
    one = rules.add("call", either([syntax.call_rule(rules, tool) for tool in tools]))
    between = syntax.syntax.between_calls
    match call.tool_choice, call.arity:
        case ToolMode(), CallArity.MANY if between:
            return f"{one} ({literal(between)} {one})*"
        case _:
            return one


def _json(schema: str, format: AnswerFormat, call: Call, opening: Opening) -> Constraint:
    may_call = call.tools and call.tool_choice is ToolMode.AUTO and format.has_syntax
    if not may_call and not format.reasoning:
        return SchemaConstraint(schema)
    rules = Rules()
    rules.read(schema)
    try:
        json = JsonGrammar(rules, Schema.of(schema)).root("answer")
    except ValueError as error:
        raise CallerError(
            f"The schema of `response_format` is no JSON: {error}", "Send a JSON schema", param="response_format"
        ) from None
    body = either([json, _calls(format, call, call.tools, rules)]) if may_call else json
    return _after_reasoning(rules, body, format.reasoning, opening)


def _after_reasoning(
    rules: Rules, body: str, reasoning: ReasoningMarkers | None, opening: Opening
) -> GrammarConstraint:
    if not reasoning:
        return GrammarConstraint(rules.render(body), rules.left_out)
    thought = f"{rules.through(reasoning.closing, 'thought')} {_GAP}"
    if opening is Opening.REASONING:
        return GrammarConstraint(rules.render(f"{thought} {body}"), rules.left_out)
    return GrammarConstraint(rules.render(f"({literal(reasoning.opening)} {thought})? {body}"), rules.left_out)
