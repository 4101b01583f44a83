"""What a template prints behind an assistant message, read off a marker that stands in for its body.

The marker is rendered, never encoded, and the text behind it never contains what the model said; so no text of
a model, a user or a tool can move the boundary.
Source: docs/decisions/0004 (sentinel bridge, cut at the last stop token common to closing and tail).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec

from turnstile.conversation import Ending, Message, Role, Text, ToolCall
from turnstile.reasons import RerenderReason
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.served import Closing, Mode, Placed, Refusal, Scene, Served, StopClass, render
from turnstile.tokens import IdRun

_LOOKAHEAD_CHARS = 256
"""How much text is encoded to see which added token begins it; more than the longest token name in use."""
_NEUTRAL_ARGUMENTS = '{"zqarg":0}'
_OPENING_USER = Message(role=Role.USER, parts=(Text("zq"),))
"""Some templates refuse a conversation without a user (Qwen3.5)."""


class Markers(msgspec.Struct, frozen=True):
    """Words that occur nowhere in what is rendered, and not in one another.

    Letters only: they survive strip, JSON and XML escaping.
    """

    stem: str

    @property
    def answer(self) -> str:
        """Stands for the answer's body."""
        return f"{self.stem}AAqz"

    @property
    def end(self) -> str:
        """Stands behind a message that the model is to continue."""
        return f"{self.stem}ABqz"

    def body(self, at: int) -> str:
        """Stands for the text of the new message with this index."""
        return f"{self.stem}B{_letters(at)}qz"

    def replayed(self, at: int) -> str:
        """Stands for the body of the new message with this index, an answer whose ids are held."""
        return f"{self.stem}R{_letters(at)}qz"


def _letters(at: int) -> str:
    high, low = divmod(at, 26)
    return "Z" * high + chr(ord("A") + low)


def markers_for(texts: Iterable[str]) -> Markers:
    """Markers that occur in none of the texts; the same texts always give the same markers."""
    haystack = tuple(texts)
    stems = itertools.chain(("zqSENTINEL",), map("zqSENTINEL{}x".format, _words()))
    return Markers(next(stem for stem in stems if not any(stem in text for text in haystack)))


def _words() -> Iterator[str]:
    for length in itertools.count(1):
        yield from map("".join, itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=length))


def texts_of(messages: Iterable[Message]) -> Iterator[str]:
    """Every text of messages that a template may print."""
    for message in messages:
        yield message.text
        yield message.reasoning
        yield message.name
        for call in message.calls:
            yield call.name
            yield call.call_id
            yield call.arguments


class Outlook(msgspec.Struct, frozen=True):
    """An answer and what follows it."""

    answer: Message
    new_M: tuple[Message, ...]
    ending: Ending
    markers: Markers


class Boundary(msgspec.Struct, frozen=True):
    """Where, in the text behind an answer's body, the answer ends and what is new begins."""

    tail: str
    """All text behind the marker."""
    anchor: int
    """Where the terminator starts; for HEADER_STOP where the next header starts."""
    end: int
    """Where what is new starts; for HEADER_STOP the same as `anchor`."""
    terminator: int
    """Its id; for HEADER_STOP the id of the next header."""
    stop_class: StopClass


def small_past(scene: Scene) -> tuple[Message, ...]:
    """The synthetic conversation before the answer: system messages and a user's."""
    return (*scene.system_M, _OPENING_USER)


def synthetic(answer: Message, mode: Mode, marker: str) -> Message:
    """An assistant message of the same kind as `answer` with a marker as body."""
    match mode:
        case Mode.CONTENT:
            return Message(role=Role.ASSISTANT, parts=(Text(marker),))
        case Mode.REASONING:
            return Message(role=Role.ASSISTANT, reasoning=marker)
        case Mode.ARGS:
            # Replacing arguments, not editing them, covers calls without arguments and malformed ones.
            arguments = (_NEUTRAL_ARGUMENTS,) * (len(answer.calls) - 1) + (f'{{"zqarg":"{marker}"}}',)
            return Message(
                role=Role.ASSISTANT,
                calls=tuple(
                    ToolCall(call.call_id, call.name, text) for call, text in zip(answer.calls, arguments, strict=True)
                ),
            )
        case _:
            assert_never(mode)


def tail(served: Served, scene: Scene, past_M: tuple[Message, ...], outlook: Outlook, mode: Mode) -> str | Refusal:
    """The text from behind the answer's body to the first token that the model is to sample."""
    body = synthetic(outlook.answer, mode, outlook.markers.answer)
    match outlook.ending:
        case Ending.ANSWER:
            messages, generation = (*past_M, body, *outlook.new_M), GenerationPrompt.ADD
        case Ending.CONTINUE:
            new_M = (*outlook.new_M[:-1], left_open(outlook.new_M[-1], outlook.markers.end))
            messages, generation = (*past_M, body, *new_M), GenerationPrompt.OMIT
        case _:
            assert_never(outlook.ending)
    try:
        text = render(served, scene, messages, generation)
    except TemplateFailed as failure:
        return Refusal(RerenderReason.TEMPLATE_ERROR, str(failure))
    behind = split_once(text, outlook.markers.answer, f"the {mode} of an answer")
    if isinstance(behind, Refusal) or outlook.ending is Ending.ANSWER:
        return behind if isinstance(behind, Refusal) else behind[1]
    open_end = split_once(behind[1], outlook.markers.end, "the message to be continued")
    return open_end if isinstance(open_end, Refusal) else open_end[0]


def left_open(message: Message, marker: str) -> Message:
    """The message with a marker right behind its last character."""
    match message.parts:
        case (*before, Text(text=last)):
            return msgspec.structs.replace(message, parts=(*before, Text(last + marker)))
        case parts:
            return msgspec.structs.replace(message, parts=(*parts, Text(marker)))


def split_once(text: str, marker: str, what: str) -> tuple[str, str] | Refusal:
    """The text before and behind a marker that must stand in it exactly once."""
    match text.count(marker):
        case 0:
            return Refusal(RerenderReason.SENTINEL_LOST, f"the template does not print {what}")
        case 1:
            before, _, behind = text.partition(marker)
            return before, behind
        case count:
            return Refusal(RerenderReason.SENTINEL_REPEATED, f"the template prints {what} {count} times")


def closing(served: Served, scene: Scene, answer: Message, mode: Mode) -> Closing | Refusal:
    """What the template prints behind the body of a last message; computed once a scene and kind of message."""
    names = tuple(call.name for call in answer.calls) if mode is Mode.ARGS else ()
    key = (mode, names, scene.tools, scene.kwargs, bool(scene.system_M))
    return served.closing(key, lambda: closing_behind(served, scene, small_past(scene), answer, mode))


def closing_behind(
    served: Served, scene: Scene, past_M: tuple[Message, ...], answer: Message, mode: Mode
) -> Closing | Refusal:
    """The same behind a given past, computed anew."""
    markers = markers_for(itertools.chain(texts_of(past_M), texts_of((answer,)), scene.tools, (scene.kwargs,)))
    body = synthetic(answer, mode, markers.answer)
    try:
        text = render(served, scene, (*past_M, body), GenerationPrompt.OMIT)
    except TemplateFailed as failure:
        return Refusal(RerenderReason.TEMPLATE_ERROR, str(failure))
    parts = split_once(text, markers.answer, f"the {mode} of an answer")
    if isinstance(parts, Refusal):
        return parts
    return Closing(parts[1], added_tokens(served, parts[1]))


def added_tokens(served: Served, text: str) -> tuple[Placed, ...]:
    """The added tokens of a text as the tokenizer itself finds them; a search would also find look-alikes."""
    encoded = served.tokenizer.encode_with_offsets(text)
    return tuple(
        Placed(token_id, start, end)
        for token_id, (start, end) in zip(encoded.ids, encoded.offsets, strict=True)
        if token_id in served.added_ids
    )


def cut(served: Served, closed: Closing, behind: str) -> Boundary | Refusal:
    """Split the text behind an answer into the answer's end and what is new.

    The answer ends at the last stop token that its closing as last message and the text behind it as message of
    the past have in common: some templates print one more stop token behind a whole conversation (Phi-3).
    """
    stops = [token for token in closed.added if token.token_id in served.stop_ids]
    for stop in reversed(stops):
        if behind.startswith(closed.text[: stop.end]):
            return Boundary(behind, stop.start, stop.end, stop.token_id, StopClass.CLOSED)
    return _aliased(served, closed, behind, stops[0].start) if stops else _at_next_header(served, closed, behind)


def _aliased(served: Served, closed: Closing, behind: str, at: int) -> Boundary | Refusal:
    other = _added_at(served, behind, at) if behind.startswith(closed.text[:at]) else None
    if other is None:
        return Refusal(
            RerenderReason.CLOSING_MISMATCH,
            f"the template ends a last message with {closed.text[:80]!r} and one in history with {behind[:80]!r}",
        )
    return Boundary(behind, other.start, other.end, other.token_id, StopClass.ALIAS)


def _at_next_header(served: Served, closed: Closing, behind: str) -> Boundary | Refusal:
    shared = next((text for text in (closed.text, closed.text.rstrip()) if behind.startswith(text)), None)
    if shared is None:
        return Refusal(
            RerenderReason.CLOSING_MISMATCH,
            f"the template ends a last message with {closed.text[:80]!r} and one in history with {behind[:80]!r}",
        )
    start = len(behind) - len(behind[len(shared) :].lstrip())
    header = _added_at(served, behind, start)
    if header is None:
        return Refusal(RerenderReason.NO_TERMINATOR, f"no token ends a message in {behind[:80]!r}")
    if header.token_id in served.stop_ids or served.facts.stop_class is StopClass.HEADER_STOP:
        return Boundary(behind, start, start, header.token_id, StopClass.HEADER_STOP)
    return Refusal(RerenderReason.NO_TERMINATOR, f"no stop token closes a message in {behind[:80]!r}")


def _added_at(served: Served, text: str, at: int) -> Placed | None:
    first = next(iter(added_tokens(served, text[at : at + _LOOKAHEAD_CHARS])), None)
    if first is None or first.start != 0:
        return None
    return Placed(first.token_id, at, at + first.end)


class Anchored(msgspec.Struct, frozen=True):
    """Ids of what is new, encoded behind the terminator. Shapes: ids_A [A], offsets_A [A]."""

    ids_A: IdRun
    offsets_A: tuple[tuple[int, int], ...]
    """Characters in the boundary's tail."""


def encode_new(served: Served, boundary: Boundary) -> Anchored | Refusal:
    """The ids of what is new; for HEADER_STOP they begin with the header's.

    The terminator is encoded in front and its id dropped: some tokenizers put a space before a text's first
    word, and some added tokens swallow the blanks behind them.
    """
    encoded = served.tokenizer.encode_with_offsets(boundary.tail[boundary.anchor :])
    if not encoded.ids or encoded.ids[0] != boundary.terminator:
        return Refusal(
            RerenderReason.CLOSING_MISMATCH, "the terminator is no token of its own in front of what follows"
        )
    skip = 0 if boundary.stop_class is StopClass.HEADER_STOP else 1
    shift = boundary.anchor
    offsets = encoded.offsets[skip:]
    if shift:
        offsets = tuple([(start + shift, end + shift) for start, end in offsets])
    return Anchored(encoded.ids.slice(skip), offsets)
