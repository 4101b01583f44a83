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
_SYSTEM_FIELDS = ("system", "systemInstruction", "system_instruction")
_PARTS_NEST = 3
"""Lists in lists that hold parts: messages, the blocks of one, the blocks of a tool's result."""


class CallLimits(msgspec.Struct, frozen=True):
    """What one request may hold."""

    messages: int = 10_000
    """Also items of `input` and of `contents`."""
    parts: int = 20_000
    """Of all messages together: parts and blocks of their content, calls, and what else they list; also entries of
    `logit_bias`."""
    tools: int = 1024
    tool_bytes: int = 4 << 20
    """Of all its tools' declarations together, as JSON in UTF-8."""
    nesting: int = MAX_NESTING
    """Levels of JSON in one value that is kept; at most `keepable.MAX_NESTING`."""


_ABSENT = msgspec.Raw()


class _LongFields(msgspec.Struct):
    """Fields of the dialects that may be long."""

    messages: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    contents: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    systemInstruction: msgspec.Raw = _ABSENT
    system_instruction: msgspec.Raw = _ABSENT
    instructions: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    functions: msgspec.Raw = _ABSENT
    prediction: msgspec.Raw = _ABSENT
    response_format: msgspec.Raw = _ABSENT
    text: msgspec.Raw = _ABSENT
    generationConfig: msgspec.Raw = _ABSENT
    generation_config: msgspec.Raw = _ABSENT
    metadata: msgspec.Raw = _ABSENT
    chat_template_kwargs: msgspec.Raw = _ABSENT
    documents: msgspec.Raw = _ABSENT
    logit_bias: msgspec.Raw = _ABSENT


_LONG_FIELDS: msgspec.json.Decoder[_LongFields] = msgspec.json.Decoder(_LongFields)


def check_length(body: bytes, limits: CallLimits) -> None:
    """Refuse a body with too many parts, and a long one with too many messages or tools, before they are made.

    What is no JSON, or no list where one belongs, is left to whoever reads it.

    Raises: CallerError `too_many_messages`, `too_many_parts` or `too_many_tools`.
    """
    # Each of them is an object, so that a body with few braces has few of them; an entry of a bias has a colon.
    objects, is_long = body.count(b"{"), len(body) >= _LONG_BODY
    has_many_parts = objects > limits.parts or body.count(b":") > limits.parts
    if not has_many_parts and not (is_long and objects > min(limits.messages, limits.tools)):
        return
    try:
        # A body may have a million members: those that no dialect knows are passed over, not made.
        read = _LONG_FIELDS.decode(body)
        fields = {name: raw for name, raw in msgspec.structs.asdict(read).items() if raw is not _ABSENT}
        if is_long:
            messages = max((_length(fields[name]) for name in _MESSAGE_FIELDS if name in fields), default=0)
            _check_messages(messages, limits)
            _check_tools(_length(fields["tools"]) if "tools" in fields else 0, limits)
        if has_many_parts:
            _check_parts(fields, limits)
            _check_members(body, fields, limits)
    except (msgspec.DecodeError, RecursionError):
        return


def _check_members(body: bytes, fields: dict[str, msgspec.Raw], limits: CallLimits) -> None:
    """See that a body has no more members than it may in what is not read in parts; their colons are counted."""
    others = body.count(b":") - sum(bytes(value).count(b":") for value in fields.values())
    if others > limits.parts:
        raise CallerError(
            f"The request has more than {limits.parts} members beside its messages and tools",
            "Send fewer, or raise --max-parts",
            code="too_many_parts",
        )


def _check_parts(fields: Fields, limits: CallLimits) -> None:
    count = bytes(fields["logit_bias"]).count(b":") if "logit_bias" in fields else 0
    for name in _MESSAGE_FIELDS:
        if name in fields:
            count += _count_in(fields[name], _PARTS_NEST, limits.parts)
    for name in _SYSTEM_FIELDS:
        if name in fields:
            # A list of blocks, or an object with one.
            count += _count_in(msgspec.Raw(b"[" + bytes(fields[name]) + b"]"), _PARTS_NEST, limits.parts)
            count += _length(fields[name])
    if count > limits.parts:
        raise CallerError(
            f"The messages of the request have more than {limits.parts} parts together",
            "Send fewer, or raise --max-parts",
            code="too_many_parts",
        )


def _count_in(items: msgspec.Raw, nest: int, most: int) -> int:
    """How many things stand in lists that objects of a list have, and so on; not far more than `most` are counted."""
    if bytes(memoryview(items)[:1]) != b"[" or nest == 1:
        return 0
    count = 0
    for item in _ITEMS.decode(items):
        if bytes(memoryview(item)[:1]) != b"{":
            continue
        for value in _FIELDS.decode(item).values():
            if count <= most and bytes(memoryview(value)[:1]) == b"[":
                count += _length(value)
                count += _count_in(value, nest - 1, most - count) if count <= most else 0
        if count > most:
            break
    return count


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
