"""A Gemini request, understood: what to sample, and in which form to answer."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

import msgspec

from turnstile.conversation import (
    AnyText,
    Call,
    Ending,
    JsonObject,
    JsonSchema,
    JsonText,
    Message,
    OutputForm,
    Role,
    Sampling,
)
from turnstile.errors import CallerError
from turnstile.protocols.base import WireRequest
from turnstile.protocols.gemini_messages import messages_of
from turnstile.protocols.gemini_request import (
    GenerateRequest,
    WireGenerationConfig,
    WireThinkingConfig,
    read_count,
    read_request,
    whole_number,
)
from turnstile.protocols.gemini_schema import json_schema_of
from turnstile.protocols.gemini_tools import choose, tools_of
from turnstile.protocols.headers import retry_mark
from turnstile.protocols.json_body import json_text, snippet, wrong_value
from turnstile.protocols.template_arguments import template_arguments

DIALECT_NAME = "google.gemini"

_ADDRESS = re.compile(r"/v1(?:beta)?/models/(?P<model>.+):(?P<method>\w+)", re.DOTALL)
_CONFIG = "generationConfig"
_LEVELS = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
_DEFAULT_SETTINGS = WireGenerationConfig()


class Delivery(enum.StrEnum):
    """How the client wants its answer sent."""

    WHOLE = "whole"
    EVENTS = "events"
    """Server-sent events (`alt=sse`)."""
    ARRAY = "array"
    """One JSON array whose elements come as they are sampled."""


class ThoughtDisplay(enum.StrEnum):
    """Whether the client wants to read the thinking."""

    SHOWN = "shown"
    HIDDEN = "hidden"


class AnswerForm(msgspec.Struct, frozen=True):
    """Everything about an answer's form that the request decides."""

    delivery: Delivery = Delivery.WHOLE
    thoughts: ThoughtDisplay = ThoughtDisplay.HIDDEN
    top_logprobs: int | None = None
    """Alternatives shown for each token; None = no log-probabilities."""


def decode(request: WireRequest) -> tuple[Call, AnswerForm]:
    """Understand a request for an answer.

    Raises: CallerError that names the field at fault and what to send instead.
    """
    wire, unknown_fields = read_request(request.body)
    call = _call(wire, request, unknown_fields)
    thinking = (wire.generation_config or _DEFAULT_SETTINGS).thinking_config
    shown = thinking is not None and thinking.include_thoughts
    thoughts = ThoughtDisplay.SHOWN if shown else ThoughtDisplay.HIDDEN
    return call, AnswerForm(_delivery(request), thoughts, call.sampling.top_logprobs)


def decode_count(request: WireRequest) -> Call:
    """Understand a question for the number of tokens.

    Raises: CallerError that names the field at fault and what to send instead.
    """
    wire, unknown_fields = read_count(request.body)
    return _call(wire, request, unknown_fields)


def _call(wire: GenerateRequest, request: WireRequest, unknown_fields: tuple[str, ...]) -> Call:
    messages, media = messages_of(wire.system_instruction, wire.contents)
    tool_choice, tools = choose(wire.tool_config, tools_of(wire.tools or ()))
    settings = wire.generation_config or _DEFAULT_SETTINGS
    return Call(
        dialect=DIALECT_NAME,
        model=_model(request.path),
        messages=messages,
        tools=tools,
        tool_choice=tool_choice,
        output=_output(settings),
        sampling=_sampling(settings),
        template_kwargs=_template_kwargs(settings.thinking_config, wire.chat_template_kwargs),
        ending=_ending(messages[-1], len(wire.contents) - 1),
        retry=retry_mark(request.headers),
        unknown_fields=unknown_fields,
        media=media,
    )


def _model(path: str) -> str:
    address = _ADDRESS.fullmatch(path)
    if address is None:
        problem = f"The address `{snippet(path)}` names no model"
        raise CallerError(problem, "Use /v1beta/models/MODEL:generateContent", code="not_found", status=404)
    return address["model"]


def _delivery(request: WireRequest) -> Delivery:
    """Source: Google's servers answer with a JSON array unless the address says `alt=sse`."""
    if not request.path.endswith(":streamGenerateContent"):
        return Delivery.WHOLE
    match request.query.get("alt") or request.query.get("$alt") or "json":
        case "sse":
            return Delivery.EVENTS
        case "json":
            return Delivery.ARRAY
        case alt:
            raise wrong_value("alt", "sse or json", f'"{alt}"')


def _sampling(settings: WireGenerationConfig) -> Sampling:
    top_k = whole_number(settings.top_k, f"{_CONFIG}.topK")
    return Sampling(
        temperature=settings.temperature,
        top_p=settings.top_p,
        # Off is -1 in other engines; one spelling is enough from here on.
        top_k=0 if top_k == -1 else top_k,
        min_p=settings.min_p,
        presence_penalty=settings.presence_penalty,
        frequency_penalty=settings.frequency_penalty,
        repetition_penalty=settings.repetition_penalty,
        seed=settings.seed,
        max_tokens=settings.max_output_tokens,
        stop=tuple(settings.stop_sequences or ()),
        choices=settings.candidate_count or 1,
        top_logprobs=_top_logprobs(settings),
    )


def _top_logprobs(settings: WireGenerationConfig) -> int | None:
    if settings.response_logprobs:
        return settings.logprobs or 0
    if settings.logprobs:
        problem = f"`{_CONFIG}.logprobs` is given while `responseLogprobs` is not true"
        remedy = "Send `responseLogprobs: true` with it"
        raise CallerError(problem, remedy, code="invalid_value", param=f"{_CONFIG}.logprobs")
    return None


def _output(settings: WireGenerationConfig) -> OutputForm:
    """A schema is enforced; JSON without one is an object."""
    ours, googles = settings.response_json_schema, settings.response_schema
    schema: JsonText | None = None
    if bytes(ours) != b"null":
        schema = json_text(ours)
        if not schema.startswith("{"):
            raise wrong_value(f"{_CONFIG}.responseJsonSchema", "an object", schema)
    elif bytes(googles) != b"null":
        schema = json_schema_of(googles, f"{_CONFIG}.responseSchema")
    match settings.response_mime_type or "text/plain":
        case "application/json":
            return JsonObject() if schema is None else JsonSchema(schema)
        case "text/plain" if schema is None:
            return AnyText()
        case kind:
            expected = "application/json" if schema is not None else "application/json or text/plain"
            raise wrong_value(f"{_CONFIG}.responseMimeType", expected, f'"{kind}"')


def _template_kwargs(thinking: WireThinkingConfig | None, more: Mapping[str, msgspec.Raw] | None) -> JsonText:
    """What open templates know of thinking: `enable_thinking` and `reasoning_effort`.

    A budget of 0 asks for none, a positive one for some; -1, and saying nothing, leave the template its own default.
    No engine ends the thinking after a budget; `maxOutputTokens` bounds it.
    """
    if thinking is None:
        return template_arguments(None, "", more)
    path = f"{_CONFIG}.thinkingConfig.thinkingLevel"
    level = (thinking.thinking_level or "THINKING_LEVEL_UNSPECIFIED").upper()
    effort = _LEVELS.get(level)
    if effort is None and level != "THINKING_LEVEL_UNSPECIFIED":
        raise wrong_value(path, f"one of {', '.join(_LEVELS)}", f'"{level}"')
    enabled: dict[str, msgspec.Raw] = {}
    if thinking.thinking_budget is not None and thinking.thinking_budget >= 0:
        enabled["enable_thinking"] = msgspec.Raw(b"true" if thinking.thinking_budget else b"false")
    return template_arguments(effort, path, {**enabled, **(more or {})})


def _ending(last: Message, index: int) -> Ending:
    """Contents that end with the model's ask to go on with it (prefill)."""
    if last.role is not Role.ASSISTANT:
        return Ending.ANSWER
    if last.calls:
        problem = f"`contents[{index}]`: the last content holds functionCall parts without responses"
        remedy = "Send a content with a functionResponse part for each"
        raise CallerError(problem, remedy, code="invalid_value", param=f"contents[{index}]")
    return Ending.CONTINUE
