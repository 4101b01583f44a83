"""A Responses request as it stands on the wire.

Source: OpenAI's API reference as of the `openai` package 3.57; what Codex 0.171 sends was read off its requests.
Members that are not named here are skipped, except at the top, where they are noticed by name.
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


class WirePart(msgspec.Struct, frozen=True):
    """One piece of a message, of a tool's output or of reasoning."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None


class WireItem(msgspec.Struct, frozen=True):
    """One item of the input, whatever its type."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: str | list[WirePart] | None = None
    summary: list[WirePart] | None = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Raw = _NULL
    """A string that should hold JSON; some clients send the JSON itself."""
    input: str | None = None
    output: str | list[WirePart] | None = None


class WireTool(msgspec.Struct, frozen=True):
    """A tool that the client offers; which members count depends on its type."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Raw] | None = None
    strict: bool | None = None
    format: WireToolFormat | None = None
    tools: list[Raw] | None = None


class WireToolFormat(msgspec.Struct, frozen=True):
    """The form of a custom tool's input."""

    type: str
    syntax: str | None = None
    definition: str | None = None


class WireChosenTool(msgspec.Struct, frozen=True):
    """A tool named in a tool choice."""

    type: str
    name: str | None = None
    namespace: str | None = None


class WireToolChoice(msgspec.Struct, frozen=True):
    """A tool choice in its long form."""

    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str | None = None
    tools: list[WireChosenTool] | None = None


class WireFormat(msgspec.Struct, frozen=True):
    """The form that the text must have."""

    type: str
    schema: Raw = _NULL


class WireText(msgspec.Struct, frozen=True):
    """Settings of the text."""

    format: WireFormat | None = None


class WireReasoning(msgspec.Struct, frozen=True):
    """Settings of the reasoning."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesRequest(msgspec.Struct, frozen=True):
    """The body of a Responses request. `seed` and what follows it are extensions, as other servers have them."""

    model: Annotated[str, Meta(min_length=1)]
    input: str | list[WireItem] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    include: list[str] | None = None
    tools: list[Raw] | None = None
    tool_choice: str | WireToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: WireText | None = None
    reasoning: WireReasoning | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Probability | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    metadata: dict[str, str] | None = None
    stream: bool | None = None
    seed: Annotated[int, Meta(ge=-INT64, le=INT64)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=16)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    min_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    chat_template_kwargs: dict[str, Raw] | None = None


_TRANSPORT = frozenset({
    "client_metadata", "max_tool_calls", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "request_id", "safety_identifier", "service_tier", "stream_options", "user",
})  # fmt: skip
"""Fields that change nothing about what is sampled here; accepted and not acted on. `max_tool_calls` counts calls of
built-in tools only."""

_REFUSED: dict[str, tuple[object, ...]] = {
    "access_programs": (), "background": (False,), "background_options": (), "context_management": ([],),
    "conversation": (), "image": (), "moderation": (), "prompt": (), "truncation": ("disabled",),
    "logit_bias": ({},), "n": (1,), **ENGINE_REFUSED,
}  # fmt: skip
"""Fields that would change the answer and cannot be served, each with the values that ask for nothing."""

_request_decoder = msgspec.json.Decoder(ResponsesRequest)


class ReadRequest(msgspec.Struct, frozen=True):
    """A request, and what of its body is kept as it was written."""

    wire: ResponsesRequest
    fields: dict[str, Raw]
    """Every member of the body, unread."""
    unknown_fields: tuple[str, ...]
    """Names of members that are not known here, sorted."""


def read_request(body: bytes) -> ReadRequest:
    """The request in a body.

    Raises: CallerError that names the field which is no such thing or cannot be served.
    """
    check_text(body)
    fields = fields_of(body)
    unknown = unknown_names(fields, frozenset(ResponsesRequest.__struct_fields__) | _TRANSPORT, _REFUSED)
    return ReadRequest(read_json(_request_decoder, body), fields, unknown)
