"""Messages in OpenAI's chat form, each distinct one written once."""

from __future__ import annotations

from typing import cast

import msgspec
import orjson

from turnstile.conversation import Image, JsonText, Message, Part, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.trajectory.shapes import JsonObject


def chat_message(message: Message) -> JsonObject:
    """A message as OpenAI's chat completions write it; thinking stands in `reasoning_content`.

    An image is `{"type": "image", "sha256": ..., "media_type": ...}`: by the hash of its bytes.
    """
    shaped: JsonObject = {"role": message.role.value}
    if message.name:
        shaped["name"] = message.name
    if message.role is Role.TOOL:
        shaped["tool_call_id"] = message.call_id
    if message.reasoning:
        shaped["reasoning_content"] = message.reasoning
    shaped["content"] = _content(message)
    if message.calls:
        shaped["tool_calls"] = [_tool_call(call) for call in message.calls]
    return shaped


def _content(message: Message) -> str | list[JsonObject] | None:
    if message.role is Role.ASSISTANT and not message.text and not message.images:
        return None
    if len(message.parts) > 1 or message.images:
        return [_part(part) for part in message.parts]
    return message.text


def _part(part: Part) -> JsonObject:
    match part:
        case Text(text=text):
            return {"type": "text", "text": text}
        case Image(sha256=sha256, media_type=media_type):
            return {"type": "image", "sha256": sha256, "media_type": media_type}


def _tool_call(call: ToolCall) -> JsonObject:
    return {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def shown_parts(shaped: JsonObject) -> tuple[Part, ...]:
    """The parts of a message with images, read back; empty for a message without.

    Raises: CallerError if its content is not as `chat_message` writes it.
    """
    content = shaped.get("content")
    if not isinstance(content, list) or not any(_is_image(part) for part in cast(list[object], content)):
        return ()
    try:
        return msgspec.convert(content, tuple[Part, ...])
    except msgspec.ValidationError as wrong:
        raise CallerError(f"A message with an image cannot be read: {wrong}", "Export the store again") from wrong


def without_images(shaped: JsonObject) -> JsonObject:
    """A message as a client writes it that shows none."""
    content = cast(list[object], shaped["content"])
    return {**shaped, "content": [part for part in content if not _is_image(part)]}


def _is_image(part: object) -> bool:
    return isinstance(part, dict) and cast(JsonObject, part).get("type") == "image"


class Shelf:
    """The distinct messages and tool lists of one rollout, by index, in order of first use."""

    def __init__(self) -> None:
        self._messages: dict[Message, int] = {}
        self._tools: dict[tuple[JsonText, ...], int] = {}

    def message(self, message: Message) -> int:
        """The index of a message."""
        return self._messages.setdefault(message, len(self._messages))

    def tools(self, declarations: tuple[JsonText, ...]) -> int | None:
        """The index of a tool list; None for an empty one."""
        return self._tools.setdefault(declarations, len(self._tools)) if declarations else None

    @property
    def messages(self) -> tuple[JsonObject, ...]:
        """All messages, by index."""
        return tuple(chat_message(message) for message in self._messages)

    @property
    def tool_lists(self) -> tuple[tuple[JsonObject, ...], ...]:
        """All tool lists, by index."""
        return tuple(tuple(cast(JsonObject, orjson.loads(text)) for text in tools) for tools in self._tools)
