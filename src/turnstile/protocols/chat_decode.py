"""A chat completions request, understood: what to sample, and in which form to answer."""

from __future__ import annotations

import enum

import msgspec

from turnstile.conversation import (
    AnyText,
    Call,
    CallArity,
    Ending,
    JsonObject,
    JsonSchema,
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
from turnstile.protocols.base import WireRequest
from turnstile.protocols.body_fields import unsupported
from turnstile.protocols.chat_messages import messages_of
from turnstile.protocols.chat_request import (
    ChatRequest,
    WireFunction,
    WireJsonSchema,
    WireName,
    WireResponseFormat,
    WireTool,
    WireToolChoice,
    read_request,
)
from turnstile.protocols.declaration import offered_name
from turnstile.protocols.headers import retry_mark
from turnstile.protocols.json_body import json_text, read_json, snippet, wrong_value
from turnstile.protocols.template_arguments import template_arguments

DIALECT_NAME = "openai.chat"

_function_decoder = msgspec.json.Decoder(WireFunction)
_tool_decoder = msgspec.json.Decoder(WireTool)


class Delivery(enum.StrEnum):
    """How the client wants its answer sent."""

    WHOLE = "whole"
    STREAM = "stream"
    STREAM_WITH_USAGE = "stream_with_usage"


class CallForm(enum.StrEnum):
    """How the client wants to be told of calls."""

    TOOL_CALLS = "tool_calls"
    FUNCTION_CALL = "function_call"
    """The deprecated form, which has room for one call and no id."""


class AnswerForm(msgspec.Struct, frozen=True):
    """Everything about an answer's form that the request decides."""

    delivery: Delivery = Delivery.WHOLE
    calls: CallForm = CallForm.TOOL_CALLS
    top_logprobs: int | None = None
    """Alternatives shown for each token; None = no log-probabilities."""


def decode(request: WireRequest) -> tuple[Call, AnswerForm]:
    """Understand a request.

    Raises: CallerError that names the field at fault and what to send instead.
    """
    wire, unknown_fields = read_request(request.body)
    messages, media = messages_of(wire.messages)
    tools = _tools(wire)
    call = Call(
        dialect=DIALECT_NAME,
        model=wire.model,
        messages=messages,
        tools=tools,
        tool_choice=_tool_choice(wire, tools),
        arity=CallArity.ONE if tools and (wire.parallel_tool_calls is False or wire.functions) else CallArity.MANY,
        output=_output(wire.response_format),
        sampling=_sampling(wire),
        template_kwargs=template_arguments(wire.reasoning_effort, "reasoning_effort", wire.chat_template_kwargs),
        ending=_ending(wire, messages[-1]),
        retry=retry_mark(request.headers),
        unknown_fields=unknown_fields,
        media=media,
    )
    return call, _answer_form(wire, call.sampling)


def _tools(wire: ChatRequest) -> tuple[ToolSpec, ...]:
    if wire.tools and wire.functions:
        raise CallerError(
            "`functions` stands beside `tools`", "Send `tools` only", code="invalid_value", param="functions"
        )
    if wire.functions:
        return tuple(_function(raw, f"functions[{at}]") for at, raw in enumerate(wire.functions))
    return tuple(_tool(raw, f"tools[{at}]") for at, raw in enumerate(wire.tools or ()))


def _function(raw: msgspec.Raw, path: str) -> ToolSpec:
    function = read_json(_function_decoder, raw, path)
    return ToolSpec(function.name, f'{{"type":"function","function":{json_text(raw)}}}')


def _tool(raw: msgspec.Raw, path: str) -> ToolSpec:
    tool = read_json(_tool_decoder, raw, path)
    if tool.type != "function":
        raise wrong_value(f"{path}.type", '"function"', f'"{tool.type}"' if tool.type else "")
    if tool.function is None:
        raise wrong_value(f"{path}.function", "an object")
    return ToolSpec(tool.function.name, json_text(raw))


def _tool_choice(wire: ChatRequest, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    asked = wire.function_call if wire.functions else wire.tool_choice
    param = "function_call" if wire.functions else "tool_choice"
    match asked:
        case None | "auto":
            return ToolMode.AUTO
        case "none":
            return ToolMode.NONE if tools else ToolMode.AUTO
        case "required" if tools and not wire.functions:
            return ToolMode.REQUIRED
        case "required" if not wire.functions:
            problem = "`tool_choice` is `required`, but there are no tools"
            raise CallerError(problem, "Send `tools`, or leave it out", code="invalid_value", param=param)
        case WireName(name=name) | WireToolChoice(type="function", function=WireName(name=name)):
            return NamedTool(offered_name(name, {tool.name for tool in tools}, param))
        case WireToolChoice(type="function"):
            raise wrong_value(f"{param}.function", "an object with a name")
        case WireToolChoice(type=kind):
            problem = f"`{param}` of type `{snippet(kind)}` cannot be served here"
            remedy = "Send auto, none, required or one function's name"
            raise CallerError(problem, remedy, code="unsupported_parameter", param=param)
        case str(word):
            raise wrong_value(param, "auto, none, required or one function's name", f'"{word}"')


def _output(form: WireResponseFormat | None) -> OutputForm:
    match form:
        case None | WireResponseFormat(type="text"):
            return AnyText()
        case WireResponseFormat(type="json_object"):
            return JsonObject()
        case WireResponseFormat(type="json_schema", json_schema=WireJsonSchema(schema=raw)):
            schema = json_text(raw)
            if not schema.startswith("{"):
                got = "" if schema == "null" else schema
                raise wrong_value("response_format.json_schema.schema", "an object", got)
            return JsonSchema(schema)
        case WireResponseFormat(type="json_schema"):
            raise wrong_value("response_format.json_schema", "an object")
        case WireResponseFormat(type=kind):
            raise wrong_value("response_format.type", "text, json_object or json_schema", f'"{kind}"')


def _sampling(wire: ChatRequest) -> Sampling:
    return Sampling(
        temperature=wire.temperature,
        top_p=wire.top_p,
        # vLLM writes "off" as -1 or 0; one spelling is enough from here on.
        top_k=0 if wire.top_k == -1 else wire.top_k,
        min_p=wire.min_p,
        presence_penalty=wire.presence_penalty,
        frequency_penalty=wire.frequency_penalty,
        repetition_penalty=wire.repetition_penalty,
        logit_bias=_logit_bias(wire.logit_bias),
        seed=wire.seed,
        max_tokens=_max_tokens(wire),
        stop=(wire.stop,) if isinstance(wire.stop, str) else tuple(wire.stop or ()),
        choices=wire.n or 1,
        top_logprobs=_top_logprobs(wire),
    )


def _logit_bias(biases: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    by_id: dict[int, float] = {}
    for key, bias in (biases or {}).items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise wrong_value("logit_bias", "token ids as keys", f'"{key}"')
        by_id[int(key)] = bias
    return tuple(sorted(by_id.items()))


def _max_tokens(wire: ChatRequest) -> int | None:
    """The limit under either name. Source: OpenAI answers two different ones with `invalid_parameter_combination`."""
    old, new = wire.max_tokens, wire.max_completion_tokens
    if old is not None and new is not None and old != new:
        problem = f"`max_tokens` is {old} and `max_completion_tokens` is {new}"
        remedy = "Send `max_completion_tokens` only"
        raise CallerError(problem, remedy, code="invalid_parameter_combination", param="max_tokens")
    return old if new is None else new


def _top_logprobs(wire: ChatRequest) -> int | None:
    if wire.logprobs:
        return wire.top_logprobs or 0
    if wire.top_logprobs:
        problem = "`top_logprobs` is given while `logprobs` is not true"
        raise CallerError(problem, "Send `logprobs: true` with it", code="invalid_value", param="top_logprobs")
    return None


def _ending(wire: ChatRequest, last: Message) -> Ending:
    """Whether the last message is to be continued; without a word of it a new one is begun, as at OpenAI.

    Source: vLLM's `continue_final_message`, which excludes a generation prompt; `prefix` on the last message in the
    APIs of Mistral and DeepSeek. On an earlier message it is a trace of an earlier request.
    """
    param = "continue_final_message" if wire.continue_final_message else f"messages[{len(wire.messages) - 1}].prefix"
    if not (wire.continue_final_message or wire.messages[-1].prefix):
        if wire.add_generation_prompt is False:
            raise unsupported("add_generation_prompt", "Leave it out, or send `continue_final_message: true` with it")
        return Ending.ANSWER
    if wire.add_generation_prompt:
        problem = f"`{param}` and `add_generation_prompt` exclude each other"
        raise CallerError(problem, "Send one of them", code="invalid_value", param=param)
    if last.role is not Role.ASSISTANT or last.calls:
        problem = f"`{param}` asks to continue a message that is not an assistant's text"
        remedy = "End `messages` with an assistant message without calls"
        raise CallerError(problem, remedy, code="invalid_value", param=param)
    return Ending.CONTINUE


def _answer_form(wire: ChatRequest, sampling: Sampling) -> AnswerForm:
    """`stream_options` without `stream` changes nothing and is let pass: harnesses repeat bodies without `stream`."""
    options = wire.stream_options
    delivery = Delivery.WHOLE
    if wire.stream:
        if options is not None and options.continuous_usage_stats:
            raise unsupported("stream_options.continuous_usage_stats", "Use `include_usage`")
        delivery = Delivery.STREAM_WITH_USAGE if options is not None and options.include_usage else Delivery.STREAM
    calls = CallForm.FUNCTION_CALL if wire.functions else CallForm.TOOL_CALLS
    return AnswerForm(delivery, calls, sampling.top_logprobs)
