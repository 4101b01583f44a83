"""An Anthropic message as it stands on the wire, and how it comes about from what an answer gains.

Source: Anthropic's API reference, "Messages" and "Streaming", as of the `anthropic` package 2.15.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from turnstile.conversation import Reply, ReplyFinish, Usage


class WireText(msgspec.Struct, frozen=True, tag="text"):
    """A stretch of text."""

    text: str
    citations: None = None


class WireThinking(msgspec.Struct, frozen=True, tag="thinking"):
    """A stretch of thinking."""

    thinking: str
    signature: str


class WireToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: msgspec.Raw


WireContent: TypeAlias = WireText | WireThinking | WireToolUse


class WireUsage(msgspec.Struct, frozen=True):
    """Token counts. The prompt is the sum of the three that begin with `input` or hold it."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class WireAnswer(msgspec.Struct, frozen=True):
    """A whole answer; in `message_start` an empty one."""

    id: str
    model: str
    content: list[WireContent]
    stop_reason: str | None
    stop_sequence: str | None
    usage: WireUsage
    type: str = "message"
    role: str = "assistant"


class WireMessageStart(msgspec.Struct, frozen=True, tag="message_start"):
    """The first event of a stream."""

    message: WireAnswer


class WireBlockStart(msgspec.Struct, frozen=True, tag="content_block_start"):
    """A block begins, empty."""

    index: int
    content_block: WireContent


class WireTextDelta(msgspec.Struct, frozen=True, tag="text_delta"):
    """More text."""

    text: str


class WireThinkingDelta(msgspec.Struct, frozen=True, tag="thinking_delta"):
    """More thinking."""

    thinking: str


class WireSignatureDelta(msgspec.Struct, frozen=True, tag="signature_delta"):
    """The signature of the thinking, last in its block."""

    signature: str


class WireInputDelta(msgspec.Struct, frozen=True, tag="input_json_delta"):
    """More of a tool's input, as JSON text."""

    partial_json: str


WireDelta: TypeAlias = WireTextDelta | WireThinkingDelta | WireSignatureDelta | WireInputDelta


class WireBlockDelta(msgspec.Struct, frozen=True, tag="content_block_delta"):
    """What the open block gained."""

    index: int
    delta: WireDelta


class WireBlockStop(msgspec.Struct, frozen=True, tag="content_block_stop"):
    """The open block is whole."""

    index: int


class WireStop(msgspec.Struct, frozen=True):
    """Why the answer ended."""

    stop_reason: str
    stop_sequence: str | None


class WireMessageDelta(msgspec.Struct, frozen=True, tag="message_delta"):
    """What is known of the message at its end; its counts replace those of `message_start`."""

    delta: WireStop
    usage: WireUsage


class WireMessageStop(msgspec.Struct, frozen=True, tag="message_stop"):
    """The last event of a stream that ended well."""


class WirePing(msgspec.Struct, frozen=True, tag="ping"):
    """An event that clients skip."""


WireEvent: TypeAlias = (
    WireMessageStart | WireBlockStart | WireBlockDelta | WireBlockStop | WireMessageDelta | WireMessageStop | WirePing
)


def usage_of(usage: Usage) -> WireUsage:
    """Token counts; what came from the engine's cache is no part of `input_tokens`."""
    cached = usage.cached_tokens or 0
    return WireUsage(usage.prompt_tokens - cached, usage.completion_tokens, cache_read_input_tokens=cached)


def stop_of(reply: Reply) -> WireStop:
    """Why an answer ended; one that stopped after making a call ended for the call."""
    if reply.finish is ReplyFinish.LENGTH:
        return WireStop("max_tokens", None)
    if reply.stop_string:
        return WireStop("stop_sequence", reply.stop_string)
    called = reply.finish is ReplyFinish.TOOL_CALLS or bool(reply.message.calls)
    return WireStop("tool_use" if called else "end_turn", None)
