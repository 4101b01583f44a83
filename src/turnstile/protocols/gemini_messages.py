"""Contents of a Gemini request, made into the conversation's own messages.

A functionResponse becomes a tool message, whatever content it stood in; what else the content holds follows behind
its results. Of a response `{"output": ...}` the model is shown the output, of `{"error": ...}` the error, marked as
one, and of any other the whole as JSON on one line. Contents of the model that follow one another are one answer: a
stream comes back as one content for each chunk (docs/decisions/0021).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from turnstile.conversation import Media, Message, Part, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.protocols.failed_results import marked
from turnstile.protocols.gemini_request import (
    WireBlob,
    WireContent,
    WireFile,
    WireFunctionCall,
    WireFunctionResponse,
    WirePart,
)
from turnstile.protocols.json_body import fields_of, json_text, snippet, string_or_json, wrong_value
from turnstile.protocols.media import distinct_media, image_from_base64, image_from_url
from turnstile.protocols.object_arguments import arguments_in
from turnstile.protocols.signature import answer_named_by
from turnstile.protocols.spoken import spoken

_OUTPUT, _ERROR = "output", "error"
_NULL = b"null"

_Place: TypeAlias = tuple[WirePart, str, int]
"""A part, the path of the list in which it stands, and where it stands there."""


def messages_of(
    system: WireContent | None, contents: Sequence[WireContent]
) -> tuple[tuple[Message, ...], tuple[Media, ...]]:
    """All messages, the system instruction first, and the bytes of their images, each once.

    Raises: CallerError that names the content and the part at fault.
    """
    reader = _Reader()
    if system is not None and (parts := reader.parts(system.parts or (), "systemInstruction.parts")):
        reader.messages.append(Message(Role.SYSTEM, parts))
    said: list[_Place] = []
    for index, content in enumerate(contents):
        path = f"contents[{index}].parts"
        match content.role:
            case "model":
                said += [(part, path, at) for at, part in enumerate(content.parts or ())]
                if index + 1 == len(contents) or contents[index + 1].role != "model":
                    reader.answer(said)
                    said = []
            case "user" | "function" | None:
                reader.user(content.parts or (), path)
            case role:
                raise wrong_value(f"contents[{index}].role", "user, model or function", f'"{role}"')
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
            if wire.function_response is not None:
                results.append(self._result(wire.function_response, f"{path}[{at}].functionResponse"))
            else:
                parts.append(self._part(wire, path, at))
        said = spoken(parts)
        self.messages += [*results, Message(Role.USER, said)] if said or not results else results

    def parts(self, wires: Sequence[WirePart], path: str) -> tuple[Part, ...]:
        return spoken([self._part(wire, path, at) for at, wire in enumerate(wires)])

    def answer(self, wires: Sequence[_Place]) -> None:
        """Add an answer of the model. Its texts are one: the model wrote nothing between them."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[ToolCall] = []
        for wire, path, at in wires:
            if wire.function_call is not None:
                calls.append(self._call(wire.function_call, f"{path}[{at}]", len(calls)))
            elif wire.text is not None:
                (thoughts if wire.thought else texts).append(wire.text)
            elif wire.thought_signature is None or _kinds(wire):
                remedy = "Send text, thought and functionCall parts in contents of the model"
                raise _not_served(wire, f"{path}[{at}]", remedy)
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
            if part.inline_data is not None:
                self.media.append(_image(part.inline_data, f"{where}.inlineData"))
            elif url := _address(part.file_data):
                self.media.append(image_from_url(url, f"{where}.fileData.fileUri"))
            else:
                raise _unsupported(where, "fileData", "Send the image itself as `inlineData`")
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

    def _part(self, wire: WirePart, path: str, at: int) -> Part:
        if wire.text is not None:
            return Text(wire.text)
        if wire.inline_data is not None:
            self.media.append(_image(wire.inline_data, f"{path}[{at}].inlineData"))
            return self.media[-1].image
        if url := _address(wire.file_data):
            self.media.append(image_from_url(url, f"{path}[{at}].fileData.fileUri"))
            return self.media[-1].image
        raise _not_served(wire, f"{path}[{at}]", "Send text, inlineData and functionResponse parts")

    def _call(self, wire: WireFunctionCall, path: str, at: int) -> ToolCall:
        written = json_text(wire.args)
        if written == "null":
            written = "{}"
        if not written.startswith("{"):
            raise wrong_value(f"{path}.functionCall.args", "an object", written)
        return ToolCall(wire.id or _stand_in(len(self.messages), at), wire.name, arguments_in(written))


def _stand_in(message_index: int, at: int) -> str:
    """The id of a call that came without one, equal at every turn; nine letters and digits, as some templates ask."""
    return f"fn{message_index % 10_000:04d}{at % 1_000:03d}"


def _answer_named(wires: Sequence[_Place]) -> str:
    """The answer that the first mark of ours names; Google's, and the constant that stands for none, name nothing."""
    signatures = (wire.thought_signature for wire, _, _ in wires if wire.thought_signature)
    return next((named for signature in signatures if (named := answer_named_by(signature))), "")


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


def _address(file_data: msgspec.Raw) -> str:
    """Where an image is that comes by its address; empty for a file of another kind, or in a store of Google's."""
    try:
        wire = msgspec.json.decode(file_data, type=WireFile | None)
    except msgspec.ValidationError:
        return ""
    if wire is None or wire.file_uri is None or not (wire.mime_type or "image/").lower().startswith("image/"):
        return ""
    return wire.file_uri if wire.file_uri.lower().startswith(("http://", "https://")) else ""


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
