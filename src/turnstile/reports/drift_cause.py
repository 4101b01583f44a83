"""Why a prompt that is rendered and tokenized again is not the one that is held: the cause of the first difference."""

from __future__ import annotations

import enum

import msgspec

from turnstile.conversation import Message
from turnstile.templates.served import Served
from turnstile.tokens import IdRun, first_difference

_USUAL_OPENER = "<think>"


class DriftKind(enum.StrEnum):
    """What makes the re-rendered text, or its ids, another."""

    RETOKENIZATION = "retokenization"
    """The same text, spelled with other ids."""
    THINKING = "thinking"
    """Reasoning of an earlier turn is left out or moved."""
    JSON = "json"
    """A tool call is written again: other spacing, key order or escapes."""
    WHITESPACE = "whitespace"
    """Only spaces or line breaks differ."""
    SCAFFOLD = "scaffold"
    """What the template puts around messages differs."""
    EDITED = "edited"
    """The words of an answer are others than the sampled ones, by the client, the parser or the template."""
    RENDER_FAILED = "render_failed"
    """The template refuses the history as text."""


class Held(msgspec.Struct, frozen=True):
    """A run of held ids, and the answers in it."""

    ids_T: IdRun
    sampled: tuple[tuple[int, int], ...]
    """[start, end) of each sampled stretch, in order."""
    answers: tuple[Message, ...]
    """The message that each stretch was handed out as."""


def cause(served: Served, held: Held, rendered_T: IdRun, at: int) -> DriftKind:
    """The kind of the first difference of two runs, at token `at`."""
    place = next((k for k, (_, end) in enumerate(held.sampled) if at < end), None)
    if place is None:
        return DriftKind.SCAFFOLD
    start, end = held.sampled[place]
    anchor = _anchor(served, held.ids_T, start)
    if at < anchor:
        return DriftKind.SCAFFOLD
    if _spells_otherwise(served, held.ids_T.slice(anchor, end), at - anchor):
        return DriftKind.RETOKENIZATION
    if at < start:
        return _before_answer(served, held, place, at)
    sampled = served.tokenizer.decode(held.ids_T.slice(start, end))
    # Twice as many ids as the stretch has hold any other spelling of its text.
    rendered = served.tokenizer.decode(rendered_T.slice(start, min(len(rendered_T), start + 2 * (end - start) + 16)))
    texts = _Texts(sampled, rendered, _stop_text(served, held.ids_T[end - 1]), _opener(served))
    return _of_text(texts, held.answers[place])


def _anchor(served: Served, ids_T: IdRun, start: int) -> int:
    """The last added token before an answer: a tokenizer never joins what stands on its two sides."""
    before = ids_T.slice(0, start).tolist()
    return next((at for at in range(start - 1, -1, -1) if before[at] in served.added_ids), 0)


def _spells_otherwise(served: Served, ids: IdRun, at: int) -> bool:
    """Whether the tokenizer spells the very text of these ids with another id first at index `at`."""
    return first_difference(ids, served.tokenizer.encode(served.tokenizer.decode(ids))) == at


def _before_answer(served: Served, held: Held, place: int, at: int) -> DriftKind:
    """A difference in what the template opens an answer with: a block of reasoning that is opened no more, or else."""
    opener = _opener(served)
    opened = served.tokenizer.decode(held.ids_T.slice(at, held.sampled[place][0]))
    is_thinking = bool(held.answers[place].reasoning) and opener.endswith(opened.strip())
    return DriftKind.THINKING if is_thinking else DriftKind.SCAFFOLD


class _Texts(msgspec.Struct, frozen=True):
    """An answer's text, and what stands in its place."""

    sampled: str
    rendered: str
    stop: str
    """What ended the answer; empty if it was cut."""
    opener: str
    """With what a block of reasoning begins."""


def _of_text(texts: _Texts, answer: Message) -> DriftKind:
    sampled, rendered, opener = texts.sampled, texts.rendered, texts.opener
    parted = next((k for k in range(len(sampled)) if not rendered.startswith(sampled[: k + 1])), len(sampled))
    if answer.reasoning and parted <= sampled.find(answer.reasoning) + len(answer.reasoning):
        return DriftKind.THINKING
    if sampled.lstrip().startswith(opener) and not rendered.lstrip().startswith(opener):
        # A block that holds no reasoning was left out.
        return DriftKind.THINKING
    words = sampled.find(answer.text) if answer.text else 0
    if answer.calls and parted >= words + len(answer.text):
        return DriftKind.JSON
    if "".join(rendered.split()).startswith("".join(sampled.split())):
        return DriftKind.WHITESPACE
    only_stop = texts.stop and rendered.startswith(sampled.removesuffix(texts.stop))
    return DriftKind.SCAFFOLD if only_stop else DriftKind.EDITED


def _opener(served: Served) -> str:
    return served.facts.reasoning_opener.strip() or _USUAL_OPENER


def _stop_text(served: Served, last: int) -> str:
    """The text of the token that ended an answer; empty if none did."""
    return served.tokenizer.decode(IdRun.of([last])) if last in served.stop_ids else ""
