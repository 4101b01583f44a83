"""Messages of an Anthropic request, made into the conversation's own.

A tool result becomes a tool message, whatever user message it stood in; what else a user message holds follows
behind its results. A result with `is_error` has no counterpart in chat templates, so its text says so: `Error: ` is
put in front, unless it already begins with the word (docs/decisions/0014).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.conversation import Media, Message, Part, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.protocols.anthropic_request import WireBlock, WireMessage, WireSource
from turnstile.protocols.failed_results import marked
from turnstile.protocols.json_body import json_text, snippet, wrong_value
from turnstile.protocols.media import distinct_media, image_from_base64, image_from_url
from turnstile.protocols.object_arguments import arguments_in
from turnstile.protocols.signature import answer_named_by
from turnstile.protocols.spoken import spoken

_ROLES = "user, assistant or system"


def messages_of(
    system: str | list[WireBlock] | None, wires: Sequence[WireMessage]
) -> tuple[tuple[Message, ...], tuple[Media, ...]]:
    """All messages, the system prompt first and none merged, and the bytes of their images, each once.

    A string, a list of one text block and an absent or empty one follow the conversation's rules: a string is one
    part, and nothing but empty texts is nothing.

    Raises: CallerError that names the message and the field at fault.
    """
    reader = _Reader()
    messages: list[Message] = []
    if parts := reader.parts(system or "", "system"):
        messages.append(Message(Role.SYSTEM, parts))
    for index, wire in enumerate(wires):
        messages += reader.messages(wire, f"messages[{index}]")
    return tuple(messages), distinct_media(reader.media)


class _Reader:
    def __init__(self) -> None:
        self.media: list[Media] = []

    def messages(self, wire: WireMessage, path: str) -> list[Message]:
        match wire.role:
            case "user":
                return self._user(wire.content, f"{path}.content")
            case "assistant":
                return [_assistant(wire.content, f"{path}.content")]
            case "system":
                return [Message(Role.SYSTEM, self.parts(wire.content, f"{path}.content"))]
            case role:
                raise wrong_value(f"{path}.role", _ROLES, f'"{role}"')

    def _user(self, content: str | list[WireBlock], path: str) -> list[Message]:
        if isinstance(content, str):
            return [Message(Role.USER, self.parts(content, path))]
        results: list[Message] = []
        parts: list[Part] = []
        for at, block in enumerate(content):
            if block.type == "tool_result":
                results.append(self._result(block, f"{path}[{at}]"))
            else:
                parts.append(self._part(block, path, at))
        said = spoken(parts)
        return [*results, Message(Role.USER, said)] if said or not results else results

    def _result(self, block: WireBlock, path: str) -> Message:
        if not block.tool_use_id:
            raise wrong_value(f"{path}.tool_use_id", "the id of a tool_use block", "" if block.id is None else "null")
        parts = self.parts(_result_content(block, path) or "", f"{path}.content")
        return Message(Role.TOOL, marked(parts) if block.is_error else parts, call_id=block.tool_use_id)

    def parts(self, content: str | list[WireBlock], path: str) -> tuple[Part, ...]:
        if isinstance(content, str):
            return (Text(content),) if content else ()
        return spoken([self._part(block, path, at) for at, block in enumerate(content)])

    def _part(self, block: WireBlock, path: str, at: int) -> Part:
        """The part that a block is; `path` is that of the list in which it stands at `at`."""
        match block.type:
            case "text":
                return Text(_text_of(block, path, at))
            case "image":
                self.media.append(_image(block.source, f"{path}[{at}].source"))
                return self.media[-1].image
            case "document":
                return Text(_document(block.source, f"{path}[{at}].source"))
            case "tool_reference":
                return Text(f"The tool `{block.tool_name or ''}` can be called now.")
            case kind:
                raise _not_served(f"{path}[{at}]", kind, "Send text, image and tool_result blocks")


def tools_referred_to(wires: Sequence[WireMessage]) -> frozenset[str]:
    """Names of the tools that a tool search of the client has loaded: those in `tool_reference` blocks of results.

    Raises: CallerError if the content of a result is no such thing.
    """
    found: set[str] = set()
    for index, wire in enumerate(wires):
        for at, block in enumerate(() if isinstance(wire.content, str) else wire.content):
            if block.type == "tool_result":
                content = _result_content(block, f"messages[{index}].content[{at}]")
                inner = content if isinstance(content, list) else []
                found.update(each.tool_name or "" for each in inner if each.type == "tool_reference")
    return frozenset(found)


def _result_content(block: WireBlock, path: str) -> str | list[WireBlock] | None:
    content = block.content
    if isinstance(content, dict):
        raise wrong_value(f"{path}.content", "a string or a list", msgspec.json.encode(content).decode())
    return content


def _assistant(content: str | list[WireBlock], path: str) -> Message:
    """Text blocks are one text: the model wrote nothing between them that it did not write as text."""
    if isinstance(content, str):
        return Message(Role.ASSISTANT, (Text(content),) if content else ())
    texts: list[str] = []
    thoughts: list[str] = []
    signatures: list[str] = []
    calls: list[ToolCall] = []
    for at, block in enumerate(content):
        match block.type:
            case "text":
                texts.append(_text_of(block, path, at))
            case "thinking":
                thoughts.append(block.thinking or "")
                signatures.append(block.signature or "")
            case "redacted_thinking":
                signatures.append(block.data or "")
            case "tool_use":
                calls.append(_call(block, path, at))
            case kind:
                raise _not_served(
                    f"{path}[{at}]", kind, "Send text, thinking and tool_use blocks in assistant messages"
                )
    text = "".join(texts)
    return Message(
        Role.ASSISTANT,
        (Text(text),) if text else (),
        reasoning="".join(thoughts),
        calls=tuple(calls),
        answer_id=next((named for signature in signatures if (named := answer_named_by(signature))), ""),
    )


def _call(block: WireBlock, path: str, at: int) -> ToolCall:
    if not block.name:
        raise wrong_value(f"{path}[{at}].name", "a tool's name", "" if block.name is None else '""')
    written = json_text(block.input)
    if written == "null":
        written = "{}"
    if not written.startswith("{"):
        raise wrong_value(f"{path}[{at}].input", "an object", written)
    return ToolCall(block.id or "", block.name, arguments_in(written))


def _text_of(block: WireBlock, path: str, at: int) -> str:
    if block.text is None:
        raise wrong_value(f"{path}[{at}].text", "a string")
    return block.text


def _image(source: WireSource | None, path: str) -> Media:
    match source:
        case None:
            raise wrong_value(path, "an object")
        case WireSource(type="base64", data=str(data), media_type=media_type):
            return image_from_base64(data, media_type or "", f"{path}.data")
        case WireSource(type="base64"):
            raise wrong_value(f"{path}.data", "an image in base64")
        case WireSource(type="url", url=str(url)):
            return image_from_url(url, f"{path}.url")
        case WireSource(type=kind):
            problem = f"`{path}`: an image of source type `{snippet(kind)}` would have to be fetched, which is not done"
            remedy = "Send the image itself, with a source of type `base64`"
            raise CallerError(problem, remedy, code="unsupported_value", param=path)


def _document(source: WireSource | None, path: str) -> str:
    match source:
        case WireSource(type="text", data=str(data)):
            return data
        case None:
            raise wrong_value(path, "an object")
        case WireSource(type=kind):
            problem = f"`{path}`: a document of source type `{snippet(kind)}` cannot be served"
            raise CallerError(problem, "Send its text", code="unsupported_value", param=path)


def _not_served(path: str, kind: str, remedy: str) -> CallerError:
    problem = f"`{path}`: a block of type `{snippet(kind)}` cannot be served there"
    return CallerError(problem, remedy, code="unsupported_value", param=path)
