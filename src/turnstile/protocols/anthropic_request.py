"""An Anthropic Messages request as it stands on the wire.

Source: Anthropic's API reference as of the `anthropic` package 2.15, and recordings of Claude Code 2.1. Members that
are not named here are skipped, except at the top, where they are noticed by name; `cache_control` is one of them
wherever it stands, so moving it changes nothing.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

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
from turnstile.protocols.json_body import Fields, check_text, fields_of, read_json

_NULL = Raw(b"null")

Name: TypeAlias = Annotated[str, Meta(min_length=1)]


class WireSource(msgspec.Struct, frozen=True):
    """Where the bytes of an image or the text of a document are."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class WireBlock(msgspec.Struct, frozen=True):
    """One block of a message's content, whatever its type."""

    type: str
    text: str | None = None
    source: WireSource | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    """Of a `redacted_thinking` block."""
    id: str | None = None
    name: str | None = None
    input: Raw = _NULL
    tool_use_id: str | None = None
    content: str | list[WireBlock] | Fields | None = None
    """Of a `tool_result`: a string, a list of blocks or nothing. An object is what blocks have that are not served."""
    is_error: bool | None = None
    tool_name: str | None = None
    """Of a `tool_reference`."""


class WireMessage(msgspec.Struct, frozen=True):
    """One message, whatever its role."""

    role: str
    content: str | list[WireBlock]


class WireTool(msgspec.Struct, frozen=True):
    """A tool that the client offers: its own, or one of Anthropic's by `type`."""

    name: Name | None = None
    type: str | None = None
    description: str | None = None
    input_schema: Raw = _NULL
    strict: bool | None = None
    defer_loading: bool | None = None
    display_width_px: int | None = None
    display_height_px: int | None = None


class WireToolChoice(msgspec.Struct, frozen=True):
    """How free the model is to use tools."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class WireThinking(msgspec.Struct, frozen=True):
    """Whether the model is to think, and whether the client wants to read it."""

    type: str
    budget_tokens: Annotated[int, Meta(ge=1)] | None = None
    display: str | None = None


class WireOutputFormat(msgspec.Struct, frozen=True):
    """The form that the answer must have."""

    type: str
    schema: Raw = _NULL


class WireOutputConfig(msgspec.Struct, frozen=True):
    """How the answer is made."""

    effort: str | None = None
    format: WireOutputFormat | None = None


class MessagesRequest(msgspec.Struct, frozen=True):
    """The body of a Messages or count_tokens request. `seed` and what follows it are extensions, as in a chat body."""

    model: Name
    messages: Annotated[list[WireMessage], Meta(min_length=1)]
    max_tokens: Count | None = None
    system: str | list[WireBlock] | None = None
    tools: list[Raw] | None = None
    tool_choice: WireToolChoice | None = None
    stop_sequences: Annotated[list[StopString], Meta(max_length=64)] | None = None
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = None
    top_p: Probability | None = None
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    stream: bool | None = None
    thinking: WireThinking | None = None
    output_config: WireOutputConfig | None = None
    output_format: WireOutputFormat | None = None
    """The older place of `output_config.format`."""
    seed: Annotated[int, Meta(ge=-INT64, le=INT64)] | None = None
    min_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Meta(gt=0.0, le=10.0)] | None = None
    chat_template_kwargs: dict[str, Raw] | None = None


_TRANSPORT = frozenset({
    "betas", "billing_policy", "cache_control", "diagnostics", "inference_geo", "metadata", "service_tier", "speed",
    "user_profile_id", "workspace_id",
})  # fmt: skip
"""Fields that change nothing about what is sampled here; accepted and not acted on."""

_REFUSED: dict[str, tuple[object, ...]] = {
    "compaction": (), "container": (), "fallbacks": ([],), "mcp_servers": ([],), "thread": (), **ENGINE_REFUSED,
}  # fmt: skip
"""Fields that would change the answer and cannot be served, each with the values that ask for nothing."""

_request_decoder = msgspec.json.Decoder(MessagesRequest)


def read_request(body: bytes) -> tuple[MessagesRequest, tuple[str, ...]]:
    """The request in a body, and the names of its members that are not known here, sorted.

    Raises: CallerError that names the field which is no such thing or cannot be served.
    """
    check_text(body)
    known = frozenset(MessagesRequest.__struct_fields__) | _TRANSPORT
    unknown_fields = unknown_names(fields_of(body), known, _REFUSED)
    return read_json(_request_decoder, body), unknown_fields
