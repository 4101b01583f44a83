"""An Anthropic Messages request, understood: what to sample, and in which form to answer."""

from __future__ import annotations

import enum

import msgspec

from turnstile.conversation import (
    AnyText,
    Call,
    CallArity,
    Ending,
    JsonSchema,
    JsonText,
    Message,
    NamedTool,
    OutputForm,
    Role,
    Sampling,
    ToolChoice,
    ToolMode,
    ToolSpec,
)
from turnstile.errors import CallerError
from turnstile.protocols.anthropic_messages import messages_of
from turnstile.protocols.anthropic_request import (
    MessagesRequest,
    WireOutputFormat,
    WireThinking,
    WireToolChoice,
    read_request,
)
from turnstile.protocols.anthropic_tools import tools_of
from turnstile.protocols.base import WireRequest
from turnstile.protocols.headers import retry_mark
from turnstile.protocols.json_body import json_text, snippet, wrong_value
from turnstile.protocols.template_arguments import template_arguments

DIALECT_NAME = "anthropic.messages"

_CHOICES = "auto, any, tool or none"


class Delivery(enum.StrEnum):
    """How the client wants its answer sent."""

    WHOLE = "whole"
    STREAM = "stream"


class ThinkingDisplay(enum.StrEnum):
    """What the client wants to see of the thinking."""

    SHOWN = "shown"
    OMITTED = "omitted"
    """Its signature only."""


class AnswerForm(msgspec.Struct, frozen=True):
    """Everything about an answer's form that the request decides."""

    delivery: Delivery = Delivery.WHOLE
    thinking: ThinkingDisplay = ThinkingDisplay.SHOWN


def decode(request: WireRequest) -> tuple[Call, AnswerForm]:
    """Understand a request for an answer.

    Raises: CallerError that names the field at fault and what to send instead.
    """
    wire, unknown_fields = read_request(request.body)
    if wire.max_tokens is None:
        raise wrong_value("max_tokens", "an integer")
    delivery = Delivery.STREAM if wire.stream else Delivery.WHOLE
    return _call(wire, request, unknown_fields), AnswerForm(delivery, _display(wire.thinking))


def decode_count(request: WireRequest) -> Call:
    """Understand a question for the number of tokens; `max_tokens` is not asked for.

    Raises: CallerError that names the field at fault and what to send instead.
    """
    wire, unknown_fields = read_request(request.body)
    return _call(wire, request, unknown_fields)


def _call(wire: MessagesRequest, request: WireRequest, unknown_fields: tuple[str, ...]) -> Call:
    messages, media = messages_of(wire.system, wire.messages)
    tools = tools_of(wire.tools or (), wire.messages)
    choice = wire.tool_choice
    one = bool(tools and choice and choice.disable_parallel_tool_use)
    return Call(
        dialect=DIALECT_NAME,
        model=wire.model,
        messages=messages,
        tools=tools,
        tool_choice=_tool_choice(choice, tools),
        arity=CallArity.ONE if one else CallArity.MANY,
        output=_output(wire),
        sampling=Sampling(
            temperature=wire.temperature,
            top_p=wire.top_p,
            # Off is -1 in Anthropic's oldest API and in other engines; one spelling is enough from here on.
            top_k=0 if wire.top_k == -1 else wire.top_k,
            min_p=wire.min_p,
            presence_penalty=wire.presence_penalty,
            frequency_penalty=wire.frequency_penalty,
            repetition_penalty=wire.repetition_penalty,
            seed=wire.seed,
            max_tokens=wire.max_tokens,
            stop=tuple(wire.stop_sequences or ()),
        ),
        template_kwargs=_template_kwargs(wire),
        ending=_ending(messages[-1], len(wire.messages) - 1),
        retry=retry_mark(request.headers),
        unknown_fields=unknown_fields,
        media=media,
    )


def _tool_choice(asked: WireToolChoice | None, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    match asked:
        case None | WireToolChoice(type="auto"):
            return ToolMode.AUTO
        case WireToolChoice(type="none"):
            return ToolMode.NONE if tools else ToolMode.AUTO
        case WireToolChoice(type="any") if tools:
            return ToolMode.REQUIRED
        case WireToolChoice(type="any"):
            problem = "`tool_choice` is `any`, but there are no tools"
            raise CallerError(problem, "Send `tools`, or leave it out", code="invalid_value", param="tool_choice")
        case WireToolChoice(type="tool", name=None):
            raise wrong_value("tool_choice.name", "a tool's name")
        case WireToolChoice(type="tool", name=str(name)):
            if name not in {tool.name for tool in tools}:
                problem = f"`tool_choice` names `{snippet(name)}`, which is not among the tools"
                remedy = "Name one of the tools of the request"
                raise CallerError(problem, remedy, code="invalid_value", param="tool_choice.name")
            return NamedTool(name)
        case WireToolChoice(type=kind):
            raise wrong_value("tool_choice.type", _CHOICES, f'"{kind}"')


def _output(wire: MessagesRequest) -> OutputForm:
    configured = wire.output_config.format if wire.output_config else None
    path = "output_format" if configured is None else "output_config.format"
    match configured or wire.output_format:
        case None:
            return AnyText()
        case WireOutputFormat(type="json_schema", schema=raw):
            schema = json_text(raw)
            if not schema.startswith("{"):
                raise wrong_value(f"{path}.schema", "an object", "" if schema == "null" else schema)
            return JsonSchema(schema)
        case WireOutputFormat(type=kind):
            raise wrong_value(f"{path}.type", "json_schema", f'"{kind}"')


def _template_kwargs(wire: MessagesRequest) -> JsonText:
    """What open templates know of thinking: `enable_thinking` and `reasoning_effort`.

    A request that says nothing, and `adaptive`, leave the template its own default. No engine ends the thinking
    after `budget_tokens`; `max_tokens` bounds it.
    """
    effort = wire.output_config.effort if wire.output_config else None
    more = {**_enabled(wire.thinking), **(wire.chat_template_kwargs or {})}
    return template_arguments(effort, "output_config.effort", more)


def _enabled(thinking: WireThinking | None) -> dict[str, msgspec.Raw]:
    match thinking:
        case None | WireThinking(type="adaptive" | "between_tools"):
            return {}
        case WireThinking(type="enabled"):
            return {"enable_thinking": msgspec.Raw(b"true")}
        case WireThinking(type="disabled"):
            return {"enable_thinking": msgspec.Raw(b"false")}
        case WireThinking(type=kind):
            raise wrong_value("thinking.type", "enabled, disabled or adaptive", f'"{kind}"')


def _display(thinking: WireThinking | None) -> ThinkingDisplay:
    omitted = thinking is not None and thinking.display == "omitted"
    return ThinkingDisplay.OMITTED if omitted else ThinkingDisplay.SHOWN


def _ending(last: Message, index: int) -> Ending:
    """Messages that end with the assistant's ask to go on with it (prefill)."""
    if last.role is not Role.ASSISTANT:
        return Ending.ANSWER
    if last.calls:
        problem = f"`messages[{index}]`: the last message holds tool_use blocks without results"
        remedy = "Send a user message with a tool_result block for each"
        raise CallerError(problem, remedy, code="invalid_value", param=f"messages[{index}]")
    return Ending.CONTINUE
