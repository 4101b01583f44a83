"""Messages of a chat completions request, made into the conversation's own."""

from __future__ import annotations

from collections.abc import Sequence

from turnstile.conversation import Media, Message, Part, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.protocols.chat_request import WireFunctionCall, WireImage, WireMessage, WirePart, WireToolCall
from turnstile.protocols.json_body import snippet, string_or_json, wrong_value
from turnstile.protocols.media import distinct_media, image_from_url
from turnstile.protocols.spoken import spoken

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}


def messages_of(wires: Sequence[WireMessage]) -> tuple[tuple[Message, ...], tuple[Media, ...]]:
    """All messages, in order and none merged, and the bytes of their images, each once.

    null, "", [], an absent field and a single empty text block are one value: empty. Reasoning is taken from
    the first of `reasoning_content`, `reasoning` and `reasoning_details` that holds any. A legacy
    `function_call` is a call without an id, a `function` message the answer to it.

    Raises: CallerError that names the message and the field at fault.
    """
    media: list[Media] = []
    messages = tuple(_message(wire, index, media) for index, wire in enumerate(wires))
    return messages, distinct_media(media)


def _message(wire: WireMessage, index: int, media: list[Media]) -> Message:
    """One message; the bytes of its images go behind those of earlier ones."""
    role = _ROLES.get(wire.role)
    if role is None:
        raise wrong_value(f"messages[{index}].role", f"one of {', '.join(_ROLES)}", f'"{wire.role}"')
    parts = _parts(wire.content, index, media)
    name = wire.name or ""
    if role is Role.ASSISTANT:
        return _assistant(wire, parts, index)
    if wire.tool_calls or wire.function_call:
        problem = f"`messages[{index}]`: a message with role `{wire.role}` cannot hold calls"
        raise CallerError(
            problem, "Put calls on an assistant message", code="invalid_value", param=f"messages[{index}]"
        )
    if role is Role.TOOL:
        return Message(role, parts, call_id=wire.tool_call_id or "", name=name)
    return Message(role, parts, name=name)


def _assistant(wire: WireMessage, parts: tuple[Part, ...], index: int) -> Message:
    if wire.audio is not None:
        raise _text_only(f"messages[{index}].audio", "audio")
    if wire.refusal:
        parts = (*parts, Text(wire.refusal))
    calls = tuple(_call(call, index, at) for at, call in enumerate(wire.tool_calls or ()))
    if wire.function_call is not None:
        calls = (*calls, _tool_call("", wire.function_call))
    return Message(Role.ASSISTANT, parts, reasoning=_reasoning(wire), calls=calls, name=wire.name or "")


def _parts(content: str | list[WirePart] | None, index: int, media: list[Media]) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if content is None:
        return ()
    parts: list[Part] = []
    for at, part in enumerate(content):
        path = f"messages[{index}].content[{at}]"
        if part.type == "image_url":
            media.append(_image(part.image_url, f"{path}.image_url"))
            parts.append(media[-1].image)
        else:
            parts.append(Text(_part_text(part, path)))
    return spoken(parts)


def _image(wire: WireImage | str | None, path: str) -> Media:
    match wire:
        case None:
            raise wrong_value(path, "an object with a `url`")
        case str(url):
            return image_from_url(url, path)
        case WireImage(url=url):
            return image_from_url(url, f"{path}.url")


def _part_text(part: WirePart, path: str) -> str:
    match part.type:
        case "text":
            text = part.text
        case "refusal":
            text = part.refusal
        case kind:
            raise _text_only(path, kind)
    if text is None:
        raise wrong_value(f"{path}.{part.type}", "a string")
    return text


def _text_only(path: str, kind: str) -> CallerError:
    problem = f"`{path}`: `{snippet(kind)}` cannot be served, this version serves text and images only"
    return CallerError(
        problem, "Send text, or images as `image_url` with a data URL", code="unsupported_value", param=path
    )


def _reasoning(wire: WireMessage) -> str:
    if said := wire.reasoning_content or wire.reasoning:
        return said
    return "".join(detail.text or detail.summary or "" for detail in wire.reasoning_details or ())


def _call(wire: WireToolCall, index: int, at: int) -> ToolCall:
    if wire.type not in {"function", None}:
        path = f"messages[{index}].tool_calls[{at}]"
        raise CallerError(
            f"`{path}`: calls of type `{snippet(wire.type or '')}` cannot be served",
            "Send calls of type `function`",
            code="unsupported_value",
            param=f"{path}.type",
        )
    if wire.function is None:
        raise wrong_value(f"messages[{index}].tool_calls[{at}].function", "an object")
    return _tool_call(wire.id or "", wire.function)


def _tool_call(call_id: str, function: WireFunctionCall) -> ToolCall:
    return ToolCall(call_id, function.name, string_or_json(function.arguments))
