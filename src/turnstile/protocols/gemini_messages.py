"""Contents of a Gemini request, made into the conversation's own messages.

A functionResponse becomes a tool message, whatever content it stood in; what else the content holds follows behind
its results. Of a response `{"output": ...}` the model is shown the output, of `{"error": ...}` the error, marked as
one, and of any other the whole as JSON on one line. Contents of the model that follow one another are one answer: a
stream comes back as one content for each chunk (docs/decisions/0018).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.conversation import Media, Message, Part, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.protocols.failed_results import marked
from turnstile.protocols.gemini_request import (
    WireBlob,
    WireContent,
    WireFunctionCall,
    WireFunctionResponse,
    WirePart,
)
from turnstile.protocols.json_body import fields_of, json_text, snippet, string_or_json, wrong_value
from turnstile.protocols.media import distinct_media, image_from_base64
from turnstile.protocols.object_arguments import arguments_in
from turnstile.protocols.signature import answer_named_by

_OUTPUT, _ERROR = "output", "error"
_NULL = b"null"


def messages_of(
    system: WireContent | None, contents: Sequence[WireContent]
) -> tuple[tuple[Message, ...], tuple[Media, ...]]:
    """All messages, the system instruction first, and the bytes of their images, each once.

    Raises: CallerError that names the content and the part at fault.
    """
    reader = _Reader()
    if system is not None and (parts := reader.parts(system.parts or (), "systemInstruction")):
        reader.messages.append(Message(Role.SYSTEM, parts))
    said: list[tuple[WirePart, str]] = []
    for index, content in enumerate(contents):
        path = f"contents[{index}]"
        match content.role:
            case "model":
                said += [(part, f"{path}.parts[{at}]") for at, part in enumerate(content.parts or ())]
                if index + 1 == len(contents) or contents[index + 1].role != "model":
                    reader.answer(said)
                    said = []
            case "user" | "function" | None:
                reader.user(content.parts or (), path)
            case role:
                raise wrong_value(f"{path}.role", "user, model or function", f'"{role}"')
    return tuple(reader.messages), distinct_media(reader.media)


class _Reader:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.media: list[Media] = []
        self._open: list[ToolCall] = []
        """Calls of the last answer that no result has answered yet."""

    def user(self, wires: Sequence[WirePart], path: str) -> None:
        parts: list[Part] = []
        results: list[Message] = []
        for at, wire in enumerate(wires):
            where = f"{path}.parts[{at}]"
            if wire.function_response is not None:
                results.append(self._result(wire.function_response, f"{where}.functionResponse"))
            else:
                parts.append(self._part(wire, where))
        spoken = _spoken(parts)
        self.messages += [*results, Message(Role.USER, spoken)] if spoken or not results else results

    def parts(self, wires: Sequence[WirePart], path: str) -> tuple[Part, ...]:
        return _spoken([self._part(wire, f"{path}.parts[{at}]") for at, wire in enumerate(wires)])

    def answer(self, wires: Sequence[tuple[WirePart, str]]) -> None:
        """Add an answer of the model. Its texts are one: the model wrote nothing between them."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolCall] = []
        for wire, path in wires:
            match wire:
                case WirePart(function_call=WireFunctionCall() as call):
                    calls.append(_call(call, path, _stand_in(len(self.messages), len(calls))))
                case WirePart(text=str(text), thought=True):
                    thoughts.append(text)
                case WirePart(text=str(text)):
                    texts.append(text)
                case WirePart(thought_signature=str()) if not _kinds(wire):
                    pass
                case _:
                    raise _not_served(wire, path, "Send text, thought and functionCall parts in contents of the model")
        text = "".join(texts)
        self._open = list(calls)
        self.messages.append(
            Message(
                Role.ASSISTANT,
                (Text(text),) if text else (),
                reasoning="".join(thoughts),
                calls=tuple(calls),
                answer_id=_answer_named(wires),
            )
        )

    def _result(self, wire: WireFunctionResponse, path: str) -> Message:
        parts = _response_parts(wire, path)
        for at, part in enumerate(wire.parts or ()):
            where = f"{path}.parts[{at}]"
            if part.inline_data is None:
                raise _unsupported(where, "fileData", "Send the image itself as `inlineData`")
            self.media.append(_image(part.inline_data, f"{where}.inlineData"))
            parts = (*parts, self.media[-1].image)
        return Message(Role.TOOL, parts, call_id=self._answered(wire))

    def _answered(self, wire: WireFunctionResponse) -> str:
        """The id of the call that a response answers: its own; else that of the first open call of its name."""
        found = next((call for call in self._open if call.call_id == wire.id), None) if wire.id else None
        if found is None and wire.id:
            return wire.id
        if found is None:
            found = next((call for call in self._open if call.name == wire.name), None)
        if found is None and self._open:
            found = self._open[0]
        if found is None:
            return ""
        self._open.remove(found)
        return found.call_id

    def _part(self, wire: WirePart, path: str) -> Part:
        match wire:
            case WirePart(text=str(text)):
                return Text(text)
            case WirePart(inline_data=WireBlob() as blob):
                self.media.append(_image(blob, f"{path}.inlineData"))
                return self.media[-1].image
            case _:
                raise _not_served(wire, path, "Send text, inlineData and functionResponse parts")


def _stand_in(message_index: int, at: int) -> str:
    """The id of a call that came without one, equal at every turn; nine letters and digits, as some templates ask."""
    return f"fn{message_index % 10_000:04d}{at % 1_000:03d}"


def _spoken(parts: list[Part]) -> tuple[Part, ...]:
    return tuple(parts) if any(part != Text("") for part in parts) else ()


def _answer_named(wires: Sequence[tuple[WirePart, str]]) -> str:
    """The answer that the first mark of ours names; Google's, and the constant that stands for none, name nothing."""
    signatures = (wire.thought_signature for wire, _ in wires if wire.thought_signature)
    return next((named for signature in signatures if (named := answer_named_by(signature))), "")


def _call(wire: WireFunctionCall, path: str, stand_in: str) -> ToolCall:
    written = json_text(wire.args)
    if written == "null":
        written = "{}"
    if not written.startswith("{"):
        raise wrong_value(f"{path}.functionCall.args", "an object", written)
    return ToolCall(wire.id or stand_in, wire.name, arguments_in(written))


def _response_parts(wire: WireFunctionResponse, path: str) -> tuple[Part, ...]:
    """Source: Google's reference of `FunctionResponse.response`: `output` and `error` are the keys with a meaning."""
    if bytes(wire.response) == _NULL:
        return ()
    if bytes(wire.response)[:1] != b"{":
        raise wrong_value(f"{path}.response", "an object", json_text(wire.response))
    members = fields_of(wire.response, f"{path}.response")
    match [*members]:
        case ["output"]:
            return _text(_told(members[_OUTPUT]))
        case ["error"]:
            return marked(_text(_told(members[_ERROR])))
        case _:
            return _text(_told(wire.response))


def _told(value: msgspec.Raw) -> str:
    """A string as it is, and other JSON on one line, whatever blanks the client's serialiser put between its tokens."""
    if bytes(value)[:1] == b'"':
        return string_or_json(value)
    return msgspec.json.format(bytes(value), indent=0).decode() if bytes(value) != _NULL else ""


def _text(text: str) -> tuple[Part, ...]:
    return (Text(text),) if text else ()


def _image(blob: WireBlob, path: str) -> Media:
    if blob.data is None:
        raise wrong_value(f"{path}.data", "an image in base64")
    declared = (blob.mime_type or "").strip().lower()
    if declared and not declared.startswith("image/"):
        raise _unsupported(path, declared, "Send text and images only")
    return image_from_base64(blob.data, declared, f"{path}.data")


def _kinds(wire: WirePart) -> list[str]:
    """What a part holds that is neither text nor a mark."""
    raws = {
        "fileData": wire.file_data,
        "executableCode": wire.executable_code,
        "codeExecutionResult": wire.code_execution_result,
        "toolCall": wire.tool_call,
        "toolResponse": wire.tool_response,
    }
    read = {
        "inlineData": wire.inline_data,
        "functionCall": wire.function_call,
        "functionResponse": wire.function_response,
    }
    named = [name for name, value in read.items() if value is not None]
    return [*named, *(name for name, value in raws.items() if bytes(value) != _NULL)]


def _not_served(wire: WirePart, path: str, remedy: str) -> CallerError:
    kinds = _kinds(wire)
    return _unsupported(path, kinds[0], remedy) if kinds else wrong_value(path, "a part with text", "a part without")


def _unsupported(path: str, kind: str, remedy: str) -> CallerError:
    problem = f"`{path}`: `{snippet(kind)}` cannot be served there"
    return CallerError(problem, remedy, code="unsupported_value", param=path)
