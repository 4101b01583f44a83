"""Where the texts of new messages stand in a rendered text.

A second render with a marker in place of each text shows what the template itself prints around them; walking
along it gives each text's place by position, whatever the texts contain.
"""

from __future__ import annotations

import functools
import html
import itertools
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec

from turnstile.conversation import Ending, Message, Part, Text
from turnstile.templates.render import ContentForm, MessageForm, joined_text
from turnstile.templates.sentinel import Markers
from turnstile.tokens import SegmentKind

_PROOF_CHARS = 16
_UNMISTAKABLE_CHARS = 64


class Body(msgspec.Struct, frozen=True):
    """Characters [start, end) of a rendered text that come from one text of a new message."""

    marker: str
    start: int
    end: int


class Framed(msgspec.Struct, frozen=True):
    """New messages with a marker in place of each text."""

    messages: tuple[Message, ...]
    texts: dict[str, str]
    """The text that each marker stands for."""
    contents: dict[str, int]
    """The message that each content's marker stands in."""


def framed(new_M: tuple[Message, ...], ending: Ending, markers: Markers, form: MessageForm) -> Framed:
    """Put markers in place of all texts but that of a message to be continued, which is scaffold."""
    texts: dict[str, str] = {}
    contents: dict[str, int] = {}
    messages: list[Message] = []
    fresh = map(markers.body, itertools.count())
    observed = len(new_M) - (1 if ending is Ending.CONTINUE else 0)
    for at, message in enumerate(new_M):
        changed = message
        if at < observed:
            parts, said = _marked(message, form, fresh)
            texts |= said
            contents |= dict.fromkeys(said, at)
            changed = msgspec.structs.replace(changed, parts=parts)
        if at < observed and message.reasoning:
            marker = next(fresh)
            texts[marker] = message.reasoning
            changed = msgspec.structs.replace(changed, reasoning=marker)
        messages.append(changed)
    return Framed(tuple(messages), texts, contents)


def _marked(message: Message, form: MessageForm, fresh: Iterator[str]) -> tuple[tuple[Part, ...], dict[str, str]]:
    """A message's parts with a marker for each text that a template prints in one piece, and those texts."""
    if not message.images:
        text = printed_text(message, form)
        marker = next(fresh) if text else ""
        return ((Text(marker),), {marker: text}) if text else (message.parts, {})
    parts: list[Part] = []
    said: dict[str, str] = {}
    for part in message.parts:
        if isinstance(part, Text) and part.text:
            said[marker := next(fresh)] = part.text
            parts.append(Text(marker))
        else:
            parts.append(part)
    return tuple(parts), said


def printed_texts(message: Message, form: MessageForm) -> tuple[str, ...]:
    """The texts of a message that a template prints in one piece each: all as one, or each beside its images."""
    if message.images:
        return tuple(part.text for part in message.parts if isinstance(part, Text))
    return (printed_text(message, form),)


def printed_text(message: Message, form: MessageForm) -> str:
    """The text of a message as a template gets it."""
    joiner = form.joiner if form.content is ContentForm.STRING else ""
    return joined_text(message, joiner)


def bodies_in(behind: str, frame: str, texts: dict[str, str]) -> tuple[Body, ...]:
    """The places of message texts in a rendered text, in order; what cannot be placed is left out.

    Args:
        behind: the rendered text.
        frame: the same with a marker in place of each text.
        texts: the text that each marker stands for.
    """
    places = sorted((at, marker) for marker in texts if (at := frame.find(marker)) >= 0)
    starts = [at + len(marker) for at, marker in places]
    ends = [at for at, _ in places[1:]] + [len(frame)]
    found: list[Body] = []
    at = places[0][0] if places else 0
    if not places or not behind.startswith(frame[:at]):
        return ()
    for (_, marker), between_start, between_end in zip(places, starts, ends, strict=True):
        between = frame[between_start:between_end]
        end = _end_of(behind, at, texts[marker], between)
        if end is None:
            break
        found.append(Body(marker, at, end))
        at = end + len(between)
    return tuple(found)


def unmistakable(behind: str, texts: dict[str, str]) -> tuple[Body, ...]:
    """The places of texts of which each is long and stands in the rendered text once, in order; else none.

    What a template prints of itself is not that long and that like what somebody said: no second render is needed.
    """
    found: list[Body] = []
    at = 0
    for marker, text in texts.items():
        if len(text) < _UNMISTAKABLE_CHARS:
            return ()
        start, spelling = next(
            ((place, each) for each in _plain_spellings(text) if (place := behind.find(each, at)) >= 0), (-1, "")
        )
        if start < 0 or len(spelling) < _UNMISTAKABLE_CHARS or behind.find(spelling, start + 1) >= 0:
            return ()
        at = start + len(spelling)
        found.append(Body(marker, start, at))
    return tuple(found)


def _plain_spellings(text: str) -> Iterator[str]:
    """Those of `_spellings` that cannot be taken for one another; whose a leading blank is, only a render tells."""
    yield text
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield json.dumps(text)[1:-1]
    if not text[0].isspace():
        yield text.rstrip()


def _end_of(behind: str, start: int, text: str, between: str) -> int | None:
    for spelling in _spellings(text):
        end = start + len(spelling)
        if behind.startswith(spelling, start) and behind.startswith(between, end):
            return end
    end = behind.find(between, start) if between else -1
    return end if end >= 0 else None


def _spellings(text: str) -> Iterator[str]:
    """How templates are known to print a text: as it is, stripped, as JSON, escaped for XML."""
    yield text
    yield text.strip()
    yield text.rstrip()
    yield text.lstrip()
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield json.dumps(text)[1:-1]
    yield html.escape(text, quote=False)


class Printed:
    """A rendered text, prepared once for the question whether texts are in it."""

    def __init__(self, rendered: str) -> None:
        self._rendered = rendered
        self._reached = 0

    @functools.cached_property
    def _haystacks(self) -> tuple[str, str]:
        return "".join(self._rendered.split()), "".join(html.unescape(self._rendered).split())

    def has(self, text: str) -> bool:
        """Whether the first and the last non-blank characters of a text occur in it, however escaped.

        Texts are asked for in the order in which they were rendered; then each look goes on where the last one ended.
        """
        found = self._rendered.find(text.strip(), self._reached)
        if found >= 0:
            self._reached = found
            return True
        proof = "".join(text.split())
        return all(
            any(needle in haystack for haystack in self._haystacks for needle in (end, _json_inner(end)))
            for end in (proof[:_PROOF_CHARS], proof[-_PROOF_CHARS:])
        )


def survives(text: str, behind: str) -> bool:
    """Whether a text is printed in a rendered one; see `Printed.has`."""
    return Printed(behind).has(text)


def _json_inner(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def kinds(offsets: tuple[tuple[int, int], ...], bodies: tuple[Body, ...]) -> list[tuple[int, SegmentKind]]:
    """(length, kind) pieces of ids: observation inside a body, scaffold elsewhere and where an id straddles an edge."""
    pieces: list[tuple[int, SegmentKind]] = []
    at = 0
    for body in bodies:
        first = max(at, bisect_left(offsets, body.start, key=_start))
        behind = max(first, bisect_right(offsets, body.end, key=_end))
        pieces += [(first - at, SegmentKind.SCAFFOLD), (behind - first, SegmentKind.OBSERVATION)]
        at = behind
    return [*pieces, (len(offsets) - at, SegmentKind.SCAFFOLD)]


def _start(offset: tuple[int, int]) -> int:
    return offset[0]


def _end(offset: tuple[int, int]) -> int:
    return offset[1]
