"""The one table of what counts as equal, and what of it is forgiven with a note.

Users, tools and the system are compared by role and text, exactly, images by the hash of their bytes and their
place; a tool's result also by which call it answers, not by the id that names the call. Answers of the model are
compared with what was handed out:

    text          equal; whitespace at both ends forgiven
    reasoning     absent from what the client sends, or equal; whitespace at both ends forgiven;
                  in front of the text, between <think> and </think>, forgiven
    calls         as many, in the same order, equal names; ids are not compared
    arguments     equal as JSON values, numbers as doubles; `{}`, `null` and nothing are one; no JSON: equal text
    added keys    forgiven if the value is the default that the tool's schema states, or if the schema states none
                  and the call came back under the id that it was handed out with

Everything else is an edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeGuard

import msgspec

from turnstile.conversation import Message, Role, Text, ToolCall, ToolSpec
from turnstile.history.digest import Readable, canonical_json, image_places, read_arguments, read_json
from turnstile.reasons import NoteCode

NO_POSITION = -1
SNIPPET_CHARS = 60
_LEAD_CHARS = 20
_HASH_CHARS = 12
_THINK_OPEN = "<think>"
_THINK_CLOSE = "</think>"


class Same(msgspec.Struct, frozen=True):
    """Two answers count as equal."""

    forgiven: tuple[NoteCode, ...] = ()
    """What had to be overlooked."""


class Different(msgspec.Struct, frozen=True):
    """Two messages do not count as equal."""

    was: str
    """A snippet of the held text around the difference."""
    now: str
    """A snippet of what the client sent, of the same place."""
    char_offset: int | None = None
    """Where the two texts part; None if it is not a matter of one text."""


Verdict: TypeAlias = Same | Different


class Pairing:
    """Which call of the preceding answer each tool result answers.

    By id where the id names one call; else, as where ids are absent, unknown or the same for all calls, by
    order (cases C3 and C7). Fed with the messages of a history, one after the other.
    """

    __slots__ = ("_ids", "_taken")

    def __init__(self, calls: Sequence[ToolCall] = ()) -> None:
        """Begin behind an answer with these calls."""
        self._ids = [call.call_id for call in calls]
        self._taken: set[int] = set()

    def place(self, message: Message) -> int:
        """The position of the call that a tool result answers; -1 for any other message, or if no call is left."""
        match message.role:
            case Role.ASSISTANT:
                self._ids = [call.call_id for call in message.calls]
                self._taken = set()
                return NO_POSITION
            case Role.TOOL:
                position = self._position(message.call_id)
                self._taken.add(position)
                return position
            case Role.USER | Role.SYSTEM:
                return NO_POSITION

    def _position(self, call_id: str) -> int:
        named = [at for at, held in enumerate(self._ids) if call_id and held == call_id]
        if len(named) == 1:
            return named[0]
        free = [at for at in named or range(len(self._ids)) if at not in self._taken]
        return free[0] if free else NO_POSITION


class ToolDefaults:
    """The default values that the schemas of a request's tools state for their arguments; read when asked for."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._tools = tools

    def of(self, tool: str) -> Mapping[str, bytes]:
        """Argument names and defaults, in the spelling of `canonical_json`."""
        for spec in self._tools:
            if spec.name == tool:
                return _defaults(spec)
        return {}


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


class _Function(msgspec.Struct):
    parameters: _Schema = msgspec.field(default_factory=_Schema)


class _Declaration(msgspec.Struct):
    function: _Function = msgspec.field(default_factory=_Function)


class _Property(msgspec.Struct):
    default: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def _defaults(spec: ToolSpec) -> Mapping[str, bytes]:
    try:
        properties = msgspec.json.decode(spec.declaration, type=_Declaration).function.parameters.properties
    except msgspec.DecodeError:
        # A schema of another shape states no defaults that could be forgiven.
        return {}
    stated = {name: _default(schema) for name, schema in properties.items()}
    return {name: value for name, value in stated.items() if value is not None}


def _default(schema: msgspec.Raw) -> bytes | None:
    try:
        default = msgspec.json.decode(schema, type=_Property).default
    except msgspec.DecodeError:
        return None
    if isinstance(default, msgspec.UnsetType):
        return None
    read = read_json(default)
    return canonical_json(read.value) if isinstance(read, Readable) else None


def compare_answers(held: Message, sent: Message, defaults: ToolDefaults) -> Verdict:
    """Whether an answer came back as it was handed out."""
    if held == sent:
        return Same()
    inside = _reasoning_in_text(held, sent)
    verdicts = [
        _compare_images(held, sent),
        _compare_texts(held.text, sent.text) if inside is None else inside,
        Same() if not sent.reasoning else _compare_texts(held.reasoning, sent.reasoning),
        _compare_calls(held.calls, sent.calls, defaults),
    ]
    forgiven: list[NoteCode] = []
    for verdict in verdicts:
        if isinstance(verdict, Different):
            return verdict
        forgiven += verdict.forgiven
    return Same(tuple(dict.fromkeys(forgiven)))


def compare_others(held: Message, sent: Message) -> Verdict:
    """Whether two messages, not both of them answers, are equal; positions of tool results left out."""
    images = _compare_images(held, sent) if held.role is sent.role else Same()
    if isinstance(images, Different) or (held.role is sent.role and held.text == sent.text):
        return images
    offset = _parting(held.text, sent.text) if held.role is sent.role else None
    return Different(snippet(held, offset or 0), snippet(sent, offset or 0), offset)


def compare(held: Message, sent: Message, defaults: ToolDefaults) -> Verdict:
    """Whether two messages count as equal; positions of tool results left out."""
    if held.role is Role.ASSISTANT and sent.role is Role.ASSISTANT:
        return compare_answers(held, sent, defaults)
    return compare_others(held, sent)


def continued(prefill: Message, answer: Message) -> Message:
    """An assistant message that was begun by one and finished by another, as clients put them together."""
    text = prefill.text + answer.text
    return Message(
        role=Role.ASSISTANT,
        parts=(Text(text),) if text else (),
        reasoning=prefill.reasoning + answer.reasoning,
        calls=prefill.calls + answer.calls,
    )


def says_something(message: Message) -> bool:
    """Whether a message has text, images or calls at all."""
    return bool(message.calls or message.images) or not (message.text == "" or message.text.isspace())


def snippet(message: Message, offset: int = 0) -> str:
    """At most 60 characters of a message, from a little before the offset; its calls or images if it has no text."""
    return _around(message.text or _calls_text(message.calls) or _images_text(message), offset)


def _around(text: str, offset: int) -> str:
    start = max(0, min(offset - _LEAD_CHARS, len(text) - SNIPPET_CHARS))
    return text[start : start + SNIPPET_CHARS]


def _calls_text(calls: Sequence[ToolCall]) -> str:
    return ", ".join(f"{call.name}({call.arguments})" for call in calls)


def _images_text(message: Message) -> str:
    return ", ".join(f"{image.media_type} {image.sha256[:_HASH_CHARS]}" for image in message.images)


def _parting(a: str, b: str) -> int:
    """The index of the first character at which two different texts part."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _compare_images(held: Message, sent: Message) -> Verdict:
    if image_places(held) == image_places(sent):
        return Same()
    return Different(_with_images(held), _with_images(sent))


def _with_images(message: Message) -> str:
    return (_images_text(message) or snippet(message))[:SNIPPET_CHARS]


def _compare_texts(held: str, sent: str) -> Verdict:
    if held == sent:
        return Same()
    if held.strip() == sent.strip():
        return Same((NoteCode.MATCH_WHITESPACE,))
    offset = _parting(held, sent)
    return Different(_around(held, offset), _around(sent, offset), offset)


def _reasoning_in_text(held: Message, sent: Message) -> Same | None:
    """Equal if the client put the reasoning in front of the text; None if it did not (case C2e)."""
    text = sent.text.lstrip()
    if not text.startswith(_THINK_OPEN) or held.text.strip() == text.rstrip():
        return None
    reasoning, close, rest = text.removeprefix(_THINK_OPEN).partition(_THINK_CLOSE)
    if close and reasoning.strip() == held.reasoning.strip() and rest.strip() == held.text.strip():
        return Same((NoteCode.REASONING_IN_CONTENT,))
    return None


def _compare_calls(held: Sequence[ToolCall], sent: Sequence[ToolCall], defaults: ToolDefaults) -> Verdict:
    if [call.name for call in held] != [call.name for call in sent]:
        was, now = _calls_text(held), _calls_text(sent)
        return Different(_around(was, _parting(was, now)), _around(now, _parting(was, now)))
    forgiven: tuple[NoteCode, ...] = ()
    for held_call, sent_call in zip(held, sent, strict=True):
        verdict = compare_arguments(held_call, sent_call, defaults)
        if isinstance(verdict, Different):
            return verdict
        forgiven += verdict.forgiven
    return Same(forgiven)


def compare_arguments(held: ToolCall, sent: ToolCall, defaults: ToolDefaults) -> Verdict:
    """Whether a call came back with the arguments that it was handed out with; names are not compared."""
    if held.arguments == sent.arguments:
        return Same()
    was, now = read_arguments(held.arguments), read_arguments(sent.arguments)
    if isinstance(was, Readable) and isinstance(now, Readable):
        if canonical_json(was.value) == canonical_json(now.value):
            return Same()
        if _is_object(was.value) and _is_object(now.value):
            is_anchored = bool(held.call_id) and held.call_id == sent.call_id
            forgivable = _Forgivable(defaults.of(held.name), is_anchored)
            if forgivable.added(was.value, now.value):
                return Same((NoteCode.ARGUMENTS_ADDED,))
    offset = _parting(held.arguments, sent.arguments)
    return Different(_around(held.arguments, offset), _around(sent.arguments, offset), offset)


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


class _Forgivable(msgspec.Struct, frozen=True):
    """Which added keys of one call's arguments are no edit (case J6)."""

    defaults: Mapping[str, bytes]
    is_anchored: bool

    def added(self, was: dict[str, object], now: dict[str, object]) -> bool:
        """Whether `now` is `was` and keys that are forgiven."""
        kept = {key: value for key, value in now.items() if key in was}
        if canonical_json(kept) != canonical_json(was):
            return False
        return all(self._is_forgiven(key, value) for key, value in now.items() if key not in was)

    def _is_forgiven(self, key: str, value: object) -> bool:
        stated = self.defaults.get(key)
        return self.is_anchored if stated is None else stated == canonical_json(value)
