"""Items of a Responses input, made into the conversation's messages.

One answer is several items on this wire (reasoning, text, calls) and one message in the conversation. So items of
the assistant that follow one another are one message again, unless their ids say that they are of two answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from turnstile.conversation import (
    AnswerPiece,
    JsonText,
    Media,
    Message,
    Part,
    PieceKind,
    Role,
    Text,
    ToolCall,
)
from turnstile.errors import CallerError
from turnstile.protocols.json_body import snippet, string_or_json, wrong_value
from turnstile.protocols.media import distinct_media, image_from_url
from turnstile.protocols.responses_ids import ItemKind, item_id_of, owner_of
from turnstile.protocols.responses_request import WireItem, WirePart
from turnstile.protocols.responses_tools import CUSTOM_INPUT, rendered_name
from turnstile.protocols.signature import answer_named_by
from turnstile.protocols.spoken import spoken

_ROLES = {"system": Role.SYSTEM, "developer": Role.SYSTEM, "user": Role.USER, "assistant": Role.ASSISTANT}
_TYPES = (
    "message, reasoning, function_call, function_call_output, custom_tool_call, custom_tool_call_output, item_reference"
)
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


class Conversation(msgspec.Struct, frozen=True):
    """What an input says."""

    messages: tuple[Message, ...]
    media: tuple[Media, ...] = ()
    pieces: tuple[AnswerPiece, ...] = ()
    """What of the messages is named only, and is to be put in from what is held."""
    foreign_blobs: tuple[str, ...] = ()
    """Places of reasoning that was sealed elsewhere."""


def conversation_of(content: str | Sequence[WireItem], instructions: str | None) -> Conversation:
    """All messages, with `instructions` as the first, a system message.

    Raises: CallerError that names the item and the field at fault.
    """
    reader = _Reader()
    if instructions:
        reader.messages.append(Message(Role.SYSTEM, (Text(instructions),)))
    if isinstance(content, str):
        reader.messages.append(Message(Role.USER, (Text(content),) if content else ()))
    else:
        for at, item in enumerate(content):
            reader.read(item, at)
        reader.end_answer()
    return Conversation(
        tuple(reader.messages), distinct_media(reader.media), tuple(reader.pieces), tuple(reader.foreign_blobs)
    )


class _Answer:
    """Items of one answer, as they come."""

    def __init__(self) -> None:
        self.answer_id = ""
        self.texts: list[Part] = []
        self.reasoning: list[str] = []
        self.calls: list[ToolCall] = []
        self.call_count = 0
        """Calls, those that are only named included."""
        self.last_type = ""

    def message(self) -> Message:
        return Message(
            Role.ASSISTANT, spoken(self.texts), "".join(self.reasoning), tuple(self.calls), answer_id=self.answer_id
        )


class _Reader:
    """Reads items one after the other."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.media: list[Media] = []
        self.pieces: list[AnswerPiece] = []
        self.foreign_blobs: list[str] = []
        self._answer: _Answer | None = None
        self._at = 0

    def end_answer(self) -> None:
        """The next item of the assistant begins another answer."""
        if self._answer is not None:
            self.messages.append(self._answer.message())
            self._answer = None

    def read(self, item: WireItem, at: int) -> None:
        """Add the item at a place of the input."""
        self._at = at
        match item.type:
            case None if item.role is None and item.id:
                self._reference(item)
            case None | "message":
                self._message(item)
            case "item_reference":
                self._reference(item)
            case "reasoning":
                self._reasoning(item)
            case "function_call" | "custom_tool_call":
                self._call(item)
            case "function_call_output" | "custom_tool_call_output":
                self.end_answer()
                parts = self._parts(item.output, "output")
                self.messages.append(Message(Role.TOOL, parts, call_id=self._required(item.call_id, "call_id")))
            case kind:
                problem = f"`{self._path}`: an item of type `{snippet(kind)}` cannot be served here"
                raise CallerError(problem, f"Send {_TYPES}", code="unsupported_value", param=f"{self._path}.type")

    @property
    def _path(self) -> str:
        # Composed for an error alone: a long history has hundreds of places, and nearly always none at fault.
        return f"input[{self._at}]"

    def _message(self, item: WireItem) -> None:
        role = _ROLES.get(item.role or "")
        if role is None:
            got = f'"{item.role}"' if item.role else ""
            raise wrong_value(f"{self._path}.role", f"one of {', '.join(_ROLES)}", got)
        if item.content is None:
            raise wrong_value(f"{self._path}.content", "a string or a list")
        parts = self._parts(item.content, "content")
        if role is Role.ASSISTANT:
            self._belonging(owner_of(item.id), "message").texts += parts
        else:
            self.end_answer()
            self.messages.append(Message(role, parts))

    def _reasoning(self, item: WireItem) -> None:
        blob = item.encrypted_content
        named = answer_named_by(blob) if blob else ""
        if blob and not named:
            self.foreign_blobs.append(self._path)
        answer = self._belonging(owner_of(item.id) or named, "reasoning")
        if isinstance(item.content, str):
            said = item.content
        else:
            said = self._texts(item.content or (), "content") or self._texts(item.summary or (), "summary")
        answer.reasoning.append(said)

    def _call(self, item: WireItem) -> None:
        answer = self._belonging(owner_of(item.id), "call")
        name = rendered_name(self._required(item.name, "name"), item.namespace)
        arguments = string_or_json(item.arguments) if item.type == "function_call" else self._custom_arguments(item)
        answer.calls.append(ToolCall(item.call_id or "", name, arguments))
        answer.call_count += 1

    def _custom_arguments(self, item: WireItem) -> JsonText:
        if item.input is None:
            raise wrong_value(f"{self._path}.input", "a string")
        named = item_id_of(item.id)
        as_written = named is not None and named.kind is ItemKind.CUSTOM_CALL_AS_WRITTEN
        return item.input if as_written else msgspec.json.encode({CUSTOM_INPUT: item.input}).decode()

    def _reference(self, item: WireItem) -> None:
        named = item_id_of(item.id)
        if named is None:
            path = self._path
            raise CallerError(
                f"`{path}.id`: there is no item `{snippet(item.id or '')}` here",
                "Send the item itself",
                code="item_not_found",
                param=f"{path}.id",
                status=404,
            )
        answer = self._belonging(named.answer_id, named.kind)
        kind = _piece_kind(named.kind)
        self.pieces.append(AnswerPiece(len(self.messages), named.answer_id, kind, named.at, answer.call_count))
        answer.call_count += kind is PieceKind.CALL

    def _belonging(self, owner: str, kind: str) -> _Answer:
        """The answer that an item of the assistant is a part of, begun if need be; `owner` is its id, if known."""
        answer = self._answer
        if answer is not None and _is_of_another(answer, owner, kind):
            self.end_answer()
            answer = None
        if answer is None:
            answer = self._answer = _Answer()
        if owner:
            answer.answer_id = owner
        answer.last_type = kind
        return answer

    def _parts(self, content: str | Sequence[WirePart] | None, member: str) -> tuple[Part, ...]:
        if isinstance(content, str):
            return (Text(content),) if content else ()
        if content is None:
            return ()
        return spoken([self._part(part, member, at) for at, part in enumerate(content)])

    def _part(self, part: WirePart, member: str, at: int) -> Part:
        if part.type != "input_image":
            return Text(self._text(part, member, at))
        path = f"{self._path}.{member}[{at}].image_url"
        if part.image_url is None:
            raise wrong_value(path, "a data URL (files by id are not kept here)")
        self.media.append(image_from_url(part.image_url, path))
        return self.media[-1].image

    def _texts(self, parts: Sequence[WirePart], member: str) -> str:
        return "".join([self._text(part, member, at) for at, part in enumerate(parts)])

    def _text(self, part: WirePart, member: str, at: int) -> str:
        refused = part.type == "refusal"
        text = part.refusal if refused else part.text
        if text is not None and (refused or part.type in _TEXTS):
            return text
        path = f"{self._path}.{member}[{at}]"
        if refused or part.type in _TEXTS:
            raise wrong_value(f"{path}.{'refusal' if refused else 'text'}", "a string")
        problem = f"`{path}`: `{snippet(part.type)}` cannot be served, this version serves text and images only"
        remedy = "Send input_text, output_text, or input_image with a data URL"
        raise CallerError(problem, remedy, code="unsupported_value", param=path)

    def _required(self, text: str | None, member: str) -> str:
        if not text:
            got = "" if text is None else '""'
            raise wrong_value(f"{self._path}.{member}", "a string of length at least 1", got)
        return text


def _is_of_another(answer: _Answer, owner: str, kind: str) -> bool:
    """Whether an item begins another answer than the one that is being read.

    Ids decide where both have them. Without ids, text behind text begins another one: one answer's text is one
    item, unless a call stands in between.
    """
    if owner and answer.answer_id:
        return owner != answer.answer_id
    return kind == "message" and answer.last_type == "message"


def _piece_kind(kind: ItemKind) -> PieceKind:
    match kind:
        case ItemKind.REASONING:
            return PieceKind.REASONING
        case ItemKind.MESSAGE:
            return PieceKind.TEXT
        case ItemKind.FUNCTION_CALL | ItemKind.CUSTOM_CALL | ItemKind.CUSTOM_CALL_AS_WRITTEN:
            return PieceKind.CALL
        case _:
            assert_never(kind)
