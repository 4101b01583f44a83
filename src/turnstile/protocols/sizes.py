"""How much one request may hold: counted before it is read where reading itself would be dear."""

from __future__ import annotations

import msgspec

from turnstile.conversation import Call
from turnstile.errors import CallerError
from turnstile.protocols.json_body import Fields
from turnstile.protocols.keepable import MAX_NESTING

_LONG_BODY = 1 << 20
"""Bytes. A shorter one has no room for so many messages that reading them takes long."""
_FIELDS: msgspec.json.Decoder[Fields] = msgspec.json.Decoder(Fields)
_ITEMS: msgspec.json.Decoder[list[msgspec.Raw]] = msgspec.json.Decoder(list[msgspec.Raw])
_MESSAGE_FIELDS = ("messages", "input", "contents")
"""Where the dialects have their messages."""


class CallLimits(msgspec.Struct, frozen=True):
    """What one request may hold."""

    messages: int = 10_000
    """Also items of `input` and of `contents`."""
    tools: int = 1024
    tool_bytes: int = 4 << 20
    """Of all its tools' declarations together, as JSON in UTF-8."""
    nesting: int = MAX_NESTING
    """Levels of JSON in one value that is kept; at most `keepable.MAX_NESTING`."""


def check_length(body: bytes, limits: CallLimits) -> None:
    """Refuse a long body with far too many messages or tools before anything is made of them.

    What is no JSON, or no list where one belongs, is left to whoever reads it.

    Raises: CallerError `too_many_messages` or `too_many_tools`.
    """
    # Each message and each tool is an object, so that a body with few braces has few of them.
    if len(body) < _LONG_BODY or body.count(b"{") <= min(limits.messages, limits.tools):
        return
    try:
        fields = _FIELDS.decode(body)
        messages = max((_length(fields[name]) for name in _MESSAGE_FIELDS if name in fields), default=0)
        tools = _length(fields["tools"]) if "tools" in fields else 0
    except (msgspec.DecodeError, RecursionError):
        return
    _check_messages(messages, limits)
    _check_tools(tools, limits)


def _length(value: msgspec.Raw) -> int:
    return len(_ITEMS.decode(value)) if bytes(memoryview(value)[:1]) == b"[" else 0


def check_sizes(call: Call, limits: CallLimits) -> None:
    """See that a call holds no more than it may.

    Raises: CallerError `too_many_messages`, `too_many_tools` or, with status 413, `tools_too_large`.
    """
    _check_messages(len(call.messages), limits)
    _check_tools(len(call.tools), limits)
    # In characters first: encoding is only needed where those come near.
    characters = sum(len(tool.declaration) for tool in call.tools)
    if 4 * characters > limits.tool_bytes:
        tool_bytes = sum(len(tool.declaration.encode()) for tool in call.tools)
        if tool_bytes > limits.tool_bytes:
            raise CallerError(
                f"The tools take {tool_bytes} bytes, and {limits.tool_bytes} is the most",
                "Send fewer or shorter tools, or raise --max-tools-kb",
                code="tools_too_large",
                status=413,
                param="tools",
            )


def _check_messages(messages: int, limits: CallLimits) -> None:
    if messages > limits.messages:
        raise CallerError(
            f"The request has {messages} messages, and {limits.messages} is the most",
            "Send fewer, or raise --max-messages",
            code="too_many_messages",
        )


def _check_tools(tools: int, limits: CallLimits) -> None:
    if tools > limits.tools:
        raise CallerError(
            f"The request has {tools} tools, and {limits.tools} is the most",
            "Send fewer, or raise --max-tools",
            code="too_many_tools",
            param="tools",
        )
