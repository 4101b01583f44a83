"""A chat completions request as it stands on the wire.

Source: OpenAI's API reference as of the `openai` package 3.57; the extensions are those of vLLM's and SGLang's
chat routes. Members that are not named here are skipped, except at the top, where they are noticed by name.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Raw

from turnstile.protocols.body_fields import (
    ENGINE_REFUSED,
    INT64,
    Count,
    Penalty,
    Probability,
    StopString,
    unknown_names,
)
from turnstile.protocols.json_body import check_text, fields_of, read_json

_NULL = Raw(b"null")


class WireImage(msgspec.Struct, frozen=True):
    """Where an image is."""

    url: str
    detail: str | None = None


class WirePart(msgspec.Struct, frozen=True):
    """One piece of a message's content."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | WireImage | None = None
    """The bare string is what some servers take beside OpenAI's object."""


class WireFunctionCall(msgspec.Struct, frozen=True):
    """What a call calls."""

    name: Annotated[str, Meta(min_length=1)]
    arguments: Raw = _NULL
    """A string that should hold JSON; some clients send the JSON itself."""


class WireToolCall(msgspec.Struct, frozen=True):
    """A call that an assistant message made."""

    id: str | None = None
    type: str | None = "function"
    function: WireFunctionCall | None = None


class WireReasoningDetail(msgspec.Struct, frozen=True):
    """A piece of reasoning as OpenRouter's clients send it back."""

    text: str | None = None
    summary: str | None = None


class WireMessage(msgspec.Struct, frozen=True):
    """One message, whatever its role."""

    role: str
    content: str | list[WirePart] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[WireToolCall] | None = None
    function_call: WireFunctionCall | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[WireReasoningDetail] | None = None
    audio: dict[str, Raw] | None = None
    prefix: bool | None = None
    """On the last message: the model is to go on with it (Mistral's and DeepSeek's extension)."""


class WireFunction(msgspec.Struct, frozen=True):
    """A function that the client offers."""

    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Raw] | None = None


class WireTool(msgspec.Struct, frozen=True):
    """A tool that the client offers."""

    type: str | None = None
    function: WireFunction | None = None


class WireName(msgspec.Struct, frozen=True):
    """Something that is called by its name."""

    name: str


class WireToolChoice(msgspec.Struct, frozen=True):
    """A tool choice in its long form."""

    type: str
    function: WireName | None = None


class WireJsonSchema(msgspec.Struct, frozen=True):
    """The schema of a structured answer."""

    schema: Raw = _NULL


class WireResponseFormat(msgspec.Struct, frozen=True):
    """The form that the answer must have."""

    type: str
    json_schema: WireJsonSchema | None = None


class WireStreamOptions(msgspec.Struct, frozen=True):
    """How a stream is written."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatRequest(msgspec.Struct, frozen=True):
    """The body of a chat completions request."""

    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[WireMessage], Meta(min_length=1)]
    tools: list[Raw] | None = None
    tool_choice: str | WireToolChoice | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Raw] | None = None
    function_call: str | WireName | None = None
    response_format: WireResponseFormat | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=16)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    seed: Annotated[int, Meta(ge=-INT64, le=INT64)] | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100.0, le=100.0)]] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    stream: bool | None = None
    stream_options: WireStreamOptions | None = None
    chat_template_kwargs: dict[str, Raw] | None = None
    reasoning_effort: str | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None


_TRANSPORT = frozenset({
    "cache_prompt", "cache_salt", "id_slot", "metadata", "priority", "prompt_cache_key", "prompt_cache_options",
    "prompt_cache_retention", "request_id", "rid", "safety_identifier", "service_tier", "store", "user", "verbosity",
})  # fmt: skip
"""Fields that change nothing about what is sampled here; accepted and not acted on."""

_REFUSED: dict[str, tuple[object, ...]] = {
    # OpenAI
    "audio": (), "modalities": (["text"],), "moderation": (), "prediction": (), "web_search_options": (),
    **ENGINE_REFUSED,
}  # fmt: skip
"""Fields that would change the answer and cannot be served, each with the values that ask for nothing."""

_request_decoder = msgspec.json.Decoder(ChatRequest)


def read_request(body: bytes) -> tuple[ChatRequest, tuple[str, ...]]:
    """The request in a body, and the names of its members that are not known here, sorted.

    Raises: CallerError that names the field which is no such thing or cannot be served.
    """
    check_text(body)
    fields = fields_of(body)
    unknown = unknown_names(fields, frozenset(ChatRequest.__struct_fields__) | _TRANSPORT, _REFUSED)
    return read_json(_request_decoder, body), unknown
