"""Applies a table of quirks to a request: a pure function of the request and its headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import assert_never

import msgspec

from turnstile.conversation import AnswerPiece, Call, CallKind, JsonSchema, Message, Role, Text, Thread
from turnstile.protocols.quirks.entry import (
    Answers,
    MarkAuxiliary,
    NameAgent,
    Place,
    Quirk,
    RemoveSystemLine,
    ToldOnly,
    ToolsShown,
    When,
)

_LOOKED_AT = 2000
"""Characters of a text that are searched: harnesses say what they want at the beginning."""
_LONGEST_NAME = 128


def apply(quirks: Sequence[Quirk], call: Call, headers: Mapping[str, str]) -> Call:
    """A request as it is recorded and planned, with the names of the quirks that it showed.

    Lines are removed before anything is looked at; of several entries that mark a call as auxiliary the first one
    counts. A request that shows no quirk is given back as it came.

    Args:
        quirks: the table.
        call: as its dialect decoded it.
        headers: of the request, names in lower case.
    """
    for quirk in quirks:
        if isinstance(quirk.action, RemoveSystemLine) and _Shown(call, headers).meets(quirk.when):
            call = _noted(quirk, call, _without_line(call, quirk.action))
    # Marks change nothing that a test looks at, so what was found out of the request holds for all of them.
    shown = _Shown(call, headers)
    for quirk in quirks:
        call = _noted(quirk, call, _marked(quirk, call, shown))
    return call


def _noted(quirk: Quirk, call: Call, changed: Call) -> Call:
    return call if changed is call else msgspec.structs.replace(changed, quirks=(*call.quirks, quirk.name))


def _marked(quirk: Quirk, call: Call, shown: _Shown) -> Call:
    """The call after one quirk that says whose it is; the very same one if it does not show it."""
    match quirk.action:
        case ToldOnly() | RemoveSystemLine():
            return call
        case MarkAuxiliary(purpose=purpose):
            if call.kind is CallKind.AUXILIARY or not shown.meets(quirk.when):
                return call
            return msgspec.structs.replace(call, kind=CallKind.AUXILIARY, purpose=purpose)
        case NameAgent() as naming:
            return _named(call, naming, shown.headers) if shown.meets(quirk.when) else call
        case _:
            assert_never(quirk.action)


def _named(call: Call, naming: NameAgent, headers: Mapping[str, str]) -> Call:
    name = "/".join(filter(None, (_readable(headers.get(header, "")) for header in naming.from_headers)))
    parent = _readable(headers.get(naming.parent_header, ""))
    return msgspec.structs.replace(call, agent_name=name[:_LONGEST_NAME], parent_agent=parent) if name else call


def _readable(value: str) -> str:
    """A header's value as part of a name: no more of it than a person can read."""
    return "".join(each for each in value.strip() if each.isprintable())[:_LONGEST_NAME]


def _without_line(call: Call, removal: RemoveSystemLine) -> Call:
    first = call.messages[0] if call.messages else None
    if first is None or first.role is not Role.SYSTEM:
        return call
    kept: list[Text] = []
    found = False
    is_beginning = True
    for part in first.parts:
        if not isinstance(part, Text):
            return call
        text = _rest(part.text, removal) if is_beginning or removal.place is Place.ANY_LINE else part.text
        found |= text is not part.text
        kept += [Text(text)] if text or text is part.text else []
        is_beginning &= not part.text
    if not found:
        return call
    return _with_first(call, msgspec.structs.replace(first, parts=tuple(kept)))


def _rest(text: str, removal: RemoveSystemLine) -> str:
    """A text without the lines that begin as the rule says; the very same one if there are none."""
    if removal.place is Place.FIRST_LINE:
        return text.partition("\n")[2] if text.startswith(removal.starts_with) else text
    lines = text.split("\n")
    kept = [line for line in lines if not line.startswith(removal.starts_with)]
    return text if len(kept) == len(lines) else "\n".join(kept)


def _with_first(call: Call, first: Message) -> Call:
    """The call with another first message; without one where nothing is left of it, unless it is the only one."""
    rest = call.messages[1:]
    if first.parts or not rest:
        return msgspec.structs.replace(call, messages=(first, *rest))
    return msgspec.structs.replace(call, messages=rest, thread=_one_message_less(call.thread))


def _one_message_less(thread: Thread) -> Thread:
    def moved(piece: AnswerPiece) -> AnswerPiece:
        return msgspec.structs.replace(piece, index_M=piece.index_M - 1)

    return msgspec.structs.replace(
        thread, pieces=tuple(map(moved, thread.pieces)), instructions_M=max(0, thread.instructions_M - 1)
    )


class _Members(msgspec.Struct, frozen=True):
    """The part of a JSON schema that names an object's members."""

    properties: dict[str, msgspec.Raw] = {}


class _Shown:
    """What of a request the tests look at, each found out at most once."""

    def __init__(self, call: Call, headers: Mapping[str, str]) -> None:
        self._call = call
        self.headers = headers

    def meets(self, when: When) -> bool:
        """Whether every test holds; the cheap ones come first."""
        return self._meets_settings(when) and self._meets_texts(when)

    def _meets_settings(self, when: When) -> bool:
        call = self._call
        return (
            (not when.dialects or call.dialect in when.dialects)
            and all(self._has(test.name, test.value) for test in when.headers)
            and when.tools in (ToolsShown.EITHER, ToolsShown.SOME if call.tools else ToolsShown.NONE)
            and when.max_tokens in (None, call.sampling.max_tokens)
        )

    def _meets_texts(self, when: When) -> bool:
        return (
            (when.answers is Answers.EITHER or not self._has_answers)
            and (not when.output_fields or set(when.output_fields) == self._output_fields)
            and (not when.user_is or when.user_is == self._only_user)
            and (not when.last_user_has or _any_in(when.last_user_has, self._last_user))
            and (not when.system_has or _any_in(when.system_has, self._system))
        )

    def _has(self, name: str, value: str) -> bool:
        sent = self.headers.get(name, "").strip()
        return sent == value if value else bool(sent)

    @cached_property
    def _has_answers(self) -> bool:
        return any(each.role is Role.ASSISTANT for each in self._call.messages)

    @cached_property
    def _output_fields(self) -> set[str]:
        if not isinstance(self._call.output, JsonSchema):
            return set()
        try:
            return set(msgspec.json.decode(self._call.output.schema, type=_Members).properties)
        except msgspec.MsgspecError:
            return set()

    @cached_property
    def _only_user(self) -> str:
        said = [each for each in self._call.messages if each.role is Role.USER]
        return said[0].text.strip().casefold() if len(said) == 1 else ""

    @cached_property
    def _last_user(self) -> str:
        last = self._call.messages[-1] if self._call.messages else None
        return _beginning([last]) if last is not None and last.role is Role.USER else ""

    @cached_property
    def _system(self) -> str:
        leading: list[Message] = []
        for message in self._call.messages:
            if message.role is not Role.SYSTEM:
                break
            leading.append(message)
        return _beginning(leading)


def _beginning(messages: Iterable[Message]) -> str:
    text = "\n".join(part.text for each in messages for part in each.parts if isinstance(part, Text))
    return text[:_LOOKED_AT].casefold()


def _any_in(pieces: Iterable[str], text: str) -> bool:
    return any(piece in text for piece in pieces)
