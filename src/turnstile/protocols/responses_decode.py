"""A Responses request, understood: what to sample, and in which form to answer."""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from turnstile.conversation import (
    AnyText,
    Call,
    CallArity,
    JsonObject,
    JsonSchema,
    OutputForm,
    Sampling,
    Storage,
    Thread,
)
from turnstile.protocols.base import WireRequest
from turnstile.protocols.headers import retry_mark
from turnstile.protocols.json_body import json_text, wrong_value
from turnstile.protocols.responses_ids import answer_id_of
from turnstile.protocols.responses_items import Conversation, conversation_of
from turnstile.protocols.responses_request import ReadRequest, ResponsesRequest, WireFormat, WireReasoning, read_request
from turnstile.protocols.responses_tools import HandedOut, Tools, choose, tools_of
from turnstile.protocols.template_arguments import template_arguments

DIALECT_NAME = "openai.responses"

_ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"
_OF_BUILT_IN_TOOLS = frozenset({
    "code_interpreter_call.outputs", "computer_call_output.output.image_url", "file_search_call.results",
    "message.input_image.image_url", "web_search_call.action.sources", "web_search_call.results",
})  # fmt: skip
"""What these ask for never occurs in an answer from here."""
_SUMMARIES = ("auto", "concise", "detailed")
_MOST_METADATA = 16
ECHOED = (
    "instructions", "max_output_tokens", "max_tool_calls", "metadata", "parallel_tool_calls", "previous_response_id",
    "prompt_cache_key", "reasoning", "safety_identifier", "store", "temperature", "text", "tool_choice", "tools",
    "top_logprobs", "top_p", "user",
)  # fmt: skip
"""Members of a request that its answer repeats."""


class Delivery(enum.StrEnum):
    """How the client wants its answer sent."""

    WHOLE = "whole"
    STREAM = "stream"


class ReasoningForm(enum.StrEnum):
    """Where the client looks for the reasoning."""

    CONTENT = "content"
    SUMMARY = "summary"


class Sealing(enum.StrEnum):
    """Whether reasoning items carry a mark for the way back."""

    BARE = "bare"
    MARKED = "marked"


class AnswerForm(msgspec.Struct, frozen=True):
    """Everything about an answer's form that the request decides."""

    delivery: Delivery = Delivery.WHOLE
    reasoning: ReasoningForm = ReasoningForm.CONTENT
    sealing: Sealing = Sealing.BARE
    top_logprobs: int | None = None
    """Alternatives shown for each token; None = no log-probabilities."""
    tools: Mapping[str, HandedOut] = {}
    """How calls are handed out, by the name that the model knows a tool by."""
    echo: Mapping[str, msgspec.Raw] = {}
    """Members of the request that the answer repeats, as they were written."""


def decode(request: WireRequest) -> tuple[Call, AnswerForm]:
    """Understand a request.

    Raises: CallerError that names the field at fault and what to send instead.
    """
    read = read_request(request.body)
    wire = read.wire
    said = _conversation(wire)
    tools = tools_of(wire.tools or (), _originator(request.headers))
    tool_choice, specs = choose(wire.tool_choice, tools)
    call = Call(
        dialect=DIALECT_NAME,
        model=wire.model,
        messages=said.messages,
        tools=specs,
        tool_choice=tool_choice,
        arity=CallArity.ONE if specs and wire.parallel_tool_calls is False else CallArity.MANY,
        output=_output(wire.text.format if wire.text else None),
        sampling=_sampling(wire),
        template_kwargs=template_arguments(
            wire.reasoning.effort if wire.reasoning else None, "reasoning.effort", wire.chat_template_kwargs
        ),
        retry=retry_mark(request.headers),
        unknown_fields=(*read.unknown_fields, *tools.left_out),
        media=said.media,
        thread=_thread(wire, said),
        foreign_marks=said.foreign_blobs,
    )
    return call, _answer_form(read, call.sampling, tools)


def _originator(headers: Mapping[str, str]) -> str:
    return headers.get("originator", "") or headers.get("user-agent", "")


def _conversation(wire: ResponsesRequest) -> Conversation:
    if not wire.input:
        raise wrong_value("input", "a string or a list of items, not empty", '""' if wire.input is not None else "")
    return conversation_of(wire.input, wire.instructions)


def _thread(wire: ResponsesRequest, said: Conversation) -> Thread:
    previous = wire.previous_response_id or ""
    return Thread(
        # An id that was minted elsewhere names no answer, and is not found as it stands.
        previous=answer_id_of(previous) or previous,
        pieces=said.pieces,
        instructions_M=1 if wire.instructions else 0,
        storage=Storage.PRIVATE if wire.store is False else Storage.REFERABLE,
    )


def _output(form: WireFormat | None) -> OutputForm:
    match form:
        case None | WireFormat(type="text"):
            return AnyText()
        case WireFormat(type="json_object"):
            return JsonObject()
        case WireFormat(type="json_schema", schema=raw):
            schema = json_text(raw)
            if not schema.startswith("{"):
                raise wrong_value("text.format.schema", "an object", "" if schema == "null" else schema)
            return JsonSchema(schema)
        case WireFormat(type=kind):
            raise wrong_value("text.format.type", "text, json_object or json_schema", f'"{kind}"')


def _sampling(wire: ResponsesRequest) -> Sampling:
    return Sampling(
        temperature=wire.temperature,
        top_p=wire.top_p,
        # vLLM writes "off" as -1 or 0; one spelling is enough from here on.
        top_k=0 if wire.top_k == -1 else wire.top_k,
        min_p=wire.min_p,
        presence_penalty=wire.presence_penalty,
        frequency_penalty=wire.frequency_penalty,
        repetition_penalty=wire.repetition_penalty,
        seed=wire.seed,
        max_tokens=wire.max_output_tokens,
        stop=(wire.stop,) if isinstance(wire.stop, str) else tuple(wire.stop or ()),
        top_logprobs=(wire.top_logprobs or 0) if wire.top_logprobs or _LOGPROBS in (wire.include or ()) else None,
    )


def _answer_form(read: ReadRequest, sampling: Sampling, tools: Tools) -> AnswerForm:
    wire = read.wire
    for at, name in enumerate(wire.include or ()):
        if name not in {_ENCRYPTED, _LOGPROBS} and name not in _OF_BUILT_IN_TOOLS:
            raise wrong_value(f"include[{at}]", f"{_ENCRYPTED} or {_LOGPROBS}", f'"{name}"')
    if len(wire.metadata or ()) > _MOST_METADATA:
        raise wrong_value("metadata", f"at most {_MOST_METADATA} members", f"{len(wire.metadata or ())}")
    return AnswerForm(
        delivery=Delivery.STREAM if wire.stream else Delivery.WHOLE,
        reasoning=_reasoning_form(wire.reasoning),
        sealing=Sealing.MARKED if _ENCRYPTED in (wire.include or ()) else Sealing.BARE,
        top_logprobs=sampling.top_logprobs,
        tools=tools.handed_out,
        # A copy, so that an answer does not keep the whole body in memory.
        echo={name: read.fields[name].copy() for name in ECHOED if name in read.fields},
    )


def _reasoning_form(asked: WireReasoning | None) -> ReasoningForm:
    summary = (asked.summary or asked.generate_summary) if asked is not None else None
    if summary is None or summary == "none":
        return ReasoningForm.CONTENT
    if summary not in _SUMMARIES:
        raise wrong_value("reasoning.summary", f"one of {', '.join(_SUMMARIES)}", f'"{summary}"')
    return ReasoningForm.SUMMARY
