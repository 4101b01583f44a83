"""What a client that re-sends text would have done to the tokens: where, how much, and of what kind.

Each prompt and each finished sequence is rendered and tokenized again from its messages, as an engine's chat route
and a trainer that starts from text would do, and compared with the ids that are held. The first index at which the
two differ decides: every sampled id from there on would have stood at another place, under another prefix, or not
at all. Nothing here changes what is stored.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

import msgspec

from turnstile.conversation import JsonText, Message
from turnstile.errors import CallerError
from turnstile.templates.render import GenerationPrompt
from turnstile.templates.served import Scene, Served, leading_system, render
from turnstile.tokens import IdRun, first_difference

_BEFORE = 2
"""Ids shown before a difference, so that its place is recognised."""
_BEHIND = 10
"""Ids shown from a difference on."""


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
    TEXT = "text"
    """The words of an answer differ."""
    RENDER_FAILED = "render_failed"
    """The template refuses the history as text."""


class Difference(msgspec.Struct, frozen=True):
    """Where one held run and its re-rendering part."""

    where: str
    """`prompt of CALL` or `sequence of CALL`."""
    kind: DriftKind
    index: int
    """First token index that differs."""
    wrong: int
    """Sampled ids at or behind it."""
    held: str
    """The held text from two ids before it on."""
    rendered: str
    """The re-rendered text from there on; for RENDER_FAILED the template's words."""
    held_ids: tuple[int, ...] = ()
    """The held ids from `index` on, up to where both sides have spelled one text; the first few if they never do."""
    rendered_ids: tuple[int, ...] = ()
    """The re-rendered ids of the same stretch."""


class Drift(msgspec.Struct, frozen=True):
    """The drift report of one rollout."""

    rollout_id: str
    prompts: int
    """Prompts that built on an earlier answer; 0 where only sequences are known."""
    prompts_differing: int
    sequences: int
    sequences_differing: int
    sampled: int
    """Sampled ids in all sequences; one that stands in two sequences counts twice."""
    wrong: int
    """Of those, how many a trainer that starts from text would have had wrong."""
    wrong_by_kind: dict[str, int]
    differences: tuple[Difference, ...]


class Told(msgspec.Struct, frozen=True):
    """A held run, and what a client of text would send for it."""

    where: str
    ids_T: IdRun
    messages: tuple[Message, ...]
    tools: tuple[JsonText, ...]
    kwargs: JsonText
    now: datetime
    """The present that the template was shown."""
    generation: GenerationPrompt
    """ADD for a prompt, OMIT for a sequence that ends with an answer."""
    sampled: tuple[tuple[int, int], ...]
    """[start, end) of each sampled stretch."""
    answers: tuple[Message, ...]
    """The message that each stretch was handed out as."""


def report(rollout_id: str, prompts: Iterable[tuple[Served, Told]], sequences: Iterable[tuple[Served, Told]]) -> Drift:
    """Compare every prompt and sequence with its re-rendering."""
    prompts, sequences = list(prompts), list(sequences)
    in_prompts = [found for served, told in prompts if (found := difference(served, told))]
    in_sequences = [found for served, told in sequences if (found := difference(served, told))]
    by_kind: Counter[str] = Counter()
    for found in in_sequences:
        by_kind[found.kind.value] += found.wrong
    return Drift(
        rollout_id=rollout_id,
        prompts=len(prompts),
        prompts_differing=len(in_prompts),
        sequences=len(sequences),
        sequences_differing=len(in_sequences),
        sampled=sum(end - start for _, told in sequences for start, end in told.sampled),
        wrong=sum(found.wrong for found in in_sequences),
        wrong_by_kind=dict(by_kind),
        differences=tuple(in_prompts + in_sequences),
    )


def difference(served: Served, told: Told) -> Difference | None:
    """The first place where a run and its re-rendering part; None if the re-rendering begins with the whole run.

    What a re-rendering has behind a sequence's last id is not compared: the template closes what is still open.
    """
    scene = Scene(leading_system(told.messages), told.tools, told.kwargs, told.now)
    try:
        text = render(served, scene, told.messages, told.generation)
    except CallerError as failed:
        wrong = sum(end - start for start, end in told.sampled)
        return Difference(told.where, DriftKind.RENDER_FAILED, 0, wrong, "", failed.problem[:200])
    rendered_T = served.tokenizer.encode(text)
    at = first_difference(told.ids_T, rendered_T)
    if at is None or (told.generation is GenerationPrompt.OMIT and at == len(told.ids_T)):
        return None
    held_ids, rendered_ids = _parted(served, told.ids_T, rendered_T, at)
    return Difference(
        where=told.where,
        kind=_kind(served, told, rendered_T, at),
        index=at,
        wrong=sum(max(0, end - max(start, at)) for start, end in told.sampled),
        held=_window(served, told.ids_T, at),
        rendered=_window(served, rendered_T, at),
        held_ids=held_ids,
        rendered_ids=rendered_ids,
    )


def _window(served: Served, ids_T: IdRun, at: int) -> str:
    return served.tokenizer.decode(ids_T.slice(max(0, at - _BEFORE), min(len(ids_T), at + _BEHIND)))


def _parted(served: Served, held_T: IdRun, rendered_T: IdRun, at: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids of each side from a difference on, up to where both have spelled the same bytes."""
    held, rendered = (tuple(run.slice(at, min(len(run), at + _BEHIND)).tolist()) for run in (held_T, rendered_T))
    rendered_ends = {_spelled(served, rendered[:count]): count for count in range(1, len(rendered) + 1)}
    for count in range(1, len(held) + 1):
        if (other := rendered_ends.get(_spelled(served, held[:count]))) is not None:
            return held[:count], rendered[:other]
    return held, rendered


def _spelled(served: Served, ids: tuple[int, ...]) -> bytes:
    return b"".join(served.tokenizer.token_bytes(each) for each in ids)


def _kind(served: Served, told: Told, rendered_T: IdRun, at: int) -> DriftKind:
    place = next((k for k, (start, end) in enumerate(told.sampled) if start <= at < end), None)
    if place is None:
        return DriftKind.SCAFFOLD
    start, end = told.sampled[place]
    held = served.tokenizer.decode(told.ids_T.slice(start, end))
    # Twice as many ids as the stretch has hold any other spelling of its text.
    rendered = served.tokenizer.decode(rendered_T.slice(start, min(len(rendered_T), start + 2 * (end - start) + 16)))
    if rendered.startswith(held):
        return DriftKind.RETOKENIZATION
    parted = next(k for k in range(len(held) + 1) if not rendered.startswith(held[: k + 1]))
    answer = told.answers[place]
    if answer.reasoning and parted <= held.find(answer.reasoning) + len(answer.reasoning):
        return DriftKind.THINKING
    if answer.calls and (not answer.text or parted >= held.find(answer.text) + len(answer.text)):
        return DriftKind.JSON
    if "".join(rendered.split()).startswith("".join(held.split())):
        return DriftKind.WHITESPACE
    return DriftKind.TEXT
