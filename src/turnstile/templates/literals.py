"""Text of a client that spells a control token, written as its characters and not as that token.

A mark is put into every such spelling before anything is rendered, so that neither the template nor the tokenizer takes
it for one. In the rendered text the tokens that are found are then the template's own; between them the marks are taken
out again, and what stands there is encoded by a twin of the tokenizer that finds no control token in text.
Source: docs/decisions/0015.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, cast, final

import msgspec

from turnstile.conversation import Call, JsonText, Message, Part, Text, ToolCall, ToolSpec
from turnstile.generation import Forked, History, Match, Note, Prompt, Rerendered, Root, Spliced
from turnstile.reasons import NoteCode
from turnstile.templates.render import ArgumentsForm
from turnstile.templates.sentinel import texts_of
from turnstile.templates.served import Served
from turnstile.templates.tokenizer import Encoded, Tokenizer
from turnstile.tokens import IdRun, join

Hide: TypeAlias = Callable[[str], str]

_MARKS = (range(0xA000, 0xA48D), range(0x3400, 0x4DB6), range(0x4E00, 0x9FA6), range(0x20000, 0x2A6D7))
"""Letters: no private-use characters, which Python escapes where a template prints a list as Python would. First the
Yi syllables, which no normal form changes and next to nobody writes."""
_ESCAPED = re.compile(r"\\[u/]")
"""JSON's other ways of writing a character of a control token."""


@final
class LiteralTokenizer(Tokenizer):
    """A tokenizer for rendered texts with marks in them; texts without one it encodes as the tokenizer itself does.

    Places are those in the text with its marks.
    """

    def __init__(self, plain: Tokenizer, mark: str) -> None:
        """Take over a tokenizer.

        Args:
            plain: it.
            mark: the character that stands in every spelling of a control token that is to be text.
        """
        vars(self).update(vars(plain))
        self._plain = plain
        self._mark = mark

    def encode(self, text: str) -> IdRun:
        """The ids of a text. Raises: CallerError as `Tokenizer.encode` does."""
        return self._plain.encode(text) if self._mark not in text else self.encode_with_offsets(text).ids

    def encode_with_offsets(self, text: str) -> Encoded:
        """The same with the place of each id. Raises: CallerError as `encode` does."""
        found = self._plain.encode_with_offsets(text)
        if self._mark not in text:
            return found
        pieces = [
            piece if self._mark not in text[start:end] else self._written(text[start:end], start)
            for piece, start, end in _between(found, self._plain.control_ids, len(text))
        ]
        return Encoded(join(piece.ids for piece in pieces), tuple(at for piece in pieces for at in piece.offsets))

    def _written(self, marked: str, shift: int) -> Encoded:
        """A piece between two control tokens, with the characters that the client wrote."""
        places = [at for at, character in enumerate(marked) if character != self._mark]
        written = self._plain.encode_as_text(marked.replace(self._mark, ""))
        offsets = tuple(
            # An id without characters (a space put before a first word) stands in front of what follows it.
            (shift + places[start], shift + places[end - 1] + 1) if end > start else (shift, shift)
            for start, end in written.offsets
        )
        return Encoded(written.ids, offsets)


def _between(found: Encoded, control_ids: frozenset[int], length: int) -> Iterator[tuple[Encoded, int, int]]:
    """Each control token, and each run of other ids with all characters up to the next control token."""
    at = start = 0
    for is_control, run in itertools.groupby(found.ids.tolist(), key=control_ids.__contains__):
        behind = at + sum(1 for _ in run)
        is_last = behind == len(found.ids)
        end = found.offsets[behind - 1][1] if is_control else length if is_last else found.offsets[behind][0]
        yield Encoded(found.ids.slice(at, behind), found.offsets[at:behind]), start, end
        at, start = behind, end


class Hidden(msgspec.Struct, frozen=True):
    """A request in which no text spells a control token."""

    served: Served
    """The model, which takes the marks out again where it makes ids."""
    call: Call
    match: Match
    mark: str

    def shown(self, prompt: Prompt) -> Prompt:
        """The prompt without marks in what it says."""
        return msgspec.structs.replace(
            prompt,
            history=_shown(prompt.history, self.mark),
            prefill=prompt.prefill.replace(self.mark, ""),
            notes=tuple(Note(note.code, note.detail.replace(self.mark, "")) for note in prompt.notes),
        )


def hidden(served: Served, call: Call, match: Match) -> Hidden | None:
    """The request with a mark in every text that spells a control token; None if there is no such text.

    Args:
        served: the model, with the template for the call's tools.
        call: for its tools and template arguments.
        match: what is held and what is new.
    """
    pattern = served.tokenizer.control_text
    held = match.parent
    past_M = () if held is None else (*held.history_M, held.message)
    texts = (*_texts(call), *texts_of((*past_M, *match.new_M)))
    if pattern is None or not any(_may_spell(text, pattern) for text in texts):
        return None
    mark = _mark_for((*texts, served.template.source))
    hide = _hider(pattern, mark)
    form = served.facts.form.arguments
    return Hidden(
        # Another package would encode the marks.
        served=dataclasses.replace(served, tokenizer=LiteralTokenizer(served.tokenizer, mark), second_opinion=None),
        call=msgspec.structs.replace(
            call,
            messages=_messages(call.messages, hide, form),
            tools=tuple(ToolSpec(hide(tool.name), _json(tool.declaration, hide)) for tool in call.tools),
            template_kwargs=_json(call.template_kwargs, hide),
        ),
        match=msgspec.structs.replace(
            match,
            parent=held
            and msgspec.structs.replace(
                held, message=_message(held.message, hide, form), history_M=_messages(held.history_M, hide, form)
            ),
            new_M=_messages(match.new_M, hide, form),
            replays=tuple(
                msgspec.structs.replace(replay, message=_message(replay.message, hide, form))
                for replay in match.replays
            ),
        ),
        mark=mark,
    )


def literal_notes(served: Served, new_M: tuple[Message, ...]) -> Iterator[Note]:
    """A note for each new message that spells a control token, which is written as text."""
    pattern = served.tokenizer.control_text
    for at, message in enumerate(new_M):
        found = None if pattern is None else next(filter(None, map(pattern.search, texts_of((message,)))), None)
        if found is not None:
            detail = f"new message {at} ({message.role}) contains {found.group()!r}, written as text"
            yield Note(NoteCode.CONTROL_TEXT_IN_CONTENT, detail)


def _texts(call: Call) -> Iterator[str]:
    yield call.template_kwargs
    for tool in call.tools:
        yield tool.name
        yield tool.declaration


def _may_spell(text: str, pattern: re.Pattern[str]) -> bool:
    return pattern.search(text) is not None or _ESCAPED.search(text) is not None


def _mark_for(texts: Iterable[str]) -> str:
    """A letter that is in none of the texts; the same texts always give the same letter."""
    said = set(itertools.chain.from_iterable(texts))
    return next(letter for letter in map(chr, itertools.chain.from_iterable(_MARKS)) if letter not in said)


def _hider(pattern: re.Pattern[str], mark: str) -> Hide:
    def hide(text: str) -> str:
        # A token's text may hold another one's: as long as one is found, it is broken behind its first character.
        while pattern.search(text) is not None:
            text = pattern.sub(lambda found: found[0][0] + mark + found[0][1:], text)
        return text

    return hide


def _messages(messages: tuple[Message, ...], hide: Hide, form: ArgumentsForm) -> tuple[Message, ...]:
    return tuple(_message(message, hide, form) for message in messages)


def _message(message: Message, hide: Hide, form: ArgumentsForm) -> Message:
    return msgspec.structs.replace(
        message,
        parts=_parts(message.parts, hide),
        reasoning=hide(message.reasoning),
        calls=tuple(
            ToolCall(hide(call.call_id), hide(call.name), _arguments(call.arguments, hide, form))
            for call in message.calls
        ),
        call_id=hide(message.call_id),
        name=hide(message.name),
    )


def _parts(parts: tuple[Part, ...], hide: Hide) -> tuple[Part, ...]:
    marked = tuple(Text(hide(part.text)) if isinstance(part, Text) else part for part in parts)
    texts = [part.text for part in marked if isinstance(part, Text)]
    if len(texts) < 2 or (whole := "".join(texts)) == (spelled := hide(whole)):
        return marked
    # Two parts spell a token together, where the template prints them side by side.
    mark = next(a for a, b in zip(spelled, f"{whole} ", strict=False) if a != b)
    return tuple(Text(mark + part.text) if isinstance(part, Text) else part for part in marked)


def _arguments(arguments: JsonText, hide: Hide, form: ArgumentsForm) -> JsonText:
    # Printed as they are, escapes and all, where the template takes the JSON text.
    return hide(arguments) if form is ArgumentsForm.STRING else _json(arguments, hide)


def _json(text: JsonText, hide: Hide) -> JsonText:
    """JSON with marks in the strings of its value; text that is no JSON with marks in itself."""
    if hide(text) == text and _ESCAPED.search(text) is None:
        return text
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return hide(text)
    marked = _value(value, hide)
    return text if marked == value else json.dumps(marked, ensure_ascii=False)


def _value(value: object, hide: Hide) -> object:
    match value:
        case str():
            return hide(value)
        case list():
            return [_value(each, hide) for each in cast("list[object]", value)]
        case dict():
            return {hide(key): _value(each, hide) for key, each in cast("dict[str, object]", value).items()}
        case _:
            return value


def _shown(history: History, mark: str) -> History:
    match history:
        case Root() | Spliced():
            return history
        case Forked():
            was, now = history.was.replace(mark, ""), history.now.replace(mark, "")
            return msgspec.structs.replace(history, was=was, now=now)
        case Rerendered():
            return msgspec.structs.replace(history, detail=history.detail.replace(mark, ""))
