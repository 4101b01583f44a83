"""Stored ids put back into a history that was rewritten: sampled answers keep their ids under another prefix.

One render of the conversation with a marker in place of each of those answers shows all texts between them. The
answers are neither decoded nor rendered; each text between two of them is encoded behind the token that ends the
first, and ends with what the second one's prompt had ended with.
Source: docs/decisions/0010.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from turnstile.conversation import Call, Ending, Message
from turnstile.generation import BridgeKind, Cut, HeldAnswer, Match, Note, Replay
from turnstile.reasons import NoteCode, RerenderReason
from turnstile.templates.bodies import Body, Framed, bodies_in, framed, kinds, survives, unmistakable
from turnstile.templates.bridge import Bridge, control_text_notes
from turnstile.templates.closing import join_to
from turnstile.templates.images import with_placeholders
from turnstile.templates.openings import Openings
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.sentinel import (
    Markers,
    Outlook,
    closing,
    closing_behind,
    cut,
    encode_new,
    left_open,
    markers_for,
    split_once,
    synthetic,
    tail,
    texts_of,
)
from turnstile.templates.served import Mode, Refusal, Scene, Served, render
from turnstile.tokens import IdRun, Segment, SegmentKind, join, tile

_ROUNDS = 4
"""Renders of one conversation: each but the last takes some answers back into text."""
_MEASURED_IN_PLACE = 16
"""Answers of one conversation whose opening may be measured on the conversation itself, a render each."""


class MultiSplice(msgspec.Struct, frozen=True):
    """What to put behind the held ids, or to begin with; `replayed` names one answer a replayed segment, in order."""

    bridge: Bridge
    """`kept_T` is 0 where nothing is held."""
    replayed: tuple[Replay, ...]
    left_out: str = ""
    """Why the other answers are text; empty if there are no others."""


class _Rewritten(msgspec.Struct, frozen=True):
    """A conversation and what of it is held."""

    served: Served
    scene: Scene
    held: HeldAnswer | None
    new_M: tuple[Message, ...]
    ending: Ending
    markers: Markers

    def before(self, index: int) -> Message | None:
        """The message in front of one of `new_M`."""
        if index:
            return self.new_M[index - 1]
        return None if self.held is None else self.held.message


class _Unfit(msgspec.Struct, frozen=True):
    """Answers that cannot be put back as they are marked: index in `new_M` and why."""

    why: dict[int, str]


class _Laid(msgspec.Struct, frozen=True):
    """All text behind the held answer's body, or the whole text, with a marker for each answer."""

    text: str
    held_mode: Mode
    """Where the held answer's marker stood."""
    new_M: tuple[Message, ...]
    """The messages with markers."""


class _Opened(msgspec.Struct, frozen=True):
    """Where an answer's opening begins in a text, and what stands there instead."""

    at: int
    in_prompt: str


class _Place(msgspec.Struct, frozen=True):
    """Where an answer stands in a text."""

    replay: Replay
    opens: int
    """The character at which its prompt's last text, `in_prompt`, belongs instead of what is printed there."""
    in_prompt: str
    end: int
    """The character behind its marker."""


class _Run(msgspec.Struct, frozen=True):
    """Ids of a text between two answers, or the first or last one's. Shapes: pieces add up to ids_A [A]."""

    kept: int
    """How many ids of what stands in front of it stay."""
    ids_A: IdRun
    pieces: tuple[tuple[int, SegmentKind], ...]


def multi_splice(served: Served, match: Match, call: Call, now: datetime) -> MultiSplice | Refusal:
    """Put the ids of `match.replays` back among the texts of `match.new_M`.

    Args:
        served: the model.
        match: what is held, what is new, and which of that are answers whose ids are held.
        call: for its tools, template arguments and ending.
        now: what the template sees as the present.

    Returns: some of the answers put back, the others as text; a refusal if none can be.

    Raises: CallerError if tools or template arguments are no JSON objects, or a text has no bytes.
    """
    rewritten = _rewritten(served, match, call, now)
    openings = Openings(served, rewritten.scene)
    why: dict[int, str] = {}
    for _ in range(_ROUNDS):
        replays = [replay for replay in match.replays if replay.index not in why]
        if not replays:
            break
        built = _built(rewritten, openings, replays)
        if isinstance(built, Refusal):
            return built
        if isinstance(built, MultiSplice):
            return msgspec.structs.replace(built, left_out=_listed(why))
        why |= built.why
    return Refusal(RerenderReason.SENTINEL_LOST, _listed(why) or "there is no answer to put back")


def _listed(why: Mapping[int, str]) -> str:
    return "; ".join(dict.fromkeys(why.values()))


def _rewritten(served: Served, match: Match, call: Call, now: datetime) -> _Rewritten:
    held = match.parent
    past_M = () if held is None else (*held.history_M, held.message)
    scene = Scene.of(call, (*past_M, *match.new_M), now)
    markers = markers_for(itertools.chain(texts_of((*past_M, *match.new_M)), scene.tools, (scene.kwargs,)))
    return _Rewritten(served, scene, held, match.new_M, call.ending, markers)


def _mode(served: Served, answer: Message) -> Mode:
    """Where the marker stands: results may need the calls that they are of, so an answer with calls keeps them."""
    return Mode.ARGS if answer.calls and not served.facts.drops_calls else Mode.CONTENT


def _built(rewritten: _Rewritten, openings: Openings, replays: Sequence[Replay]) -> MultiSplice | Refusal | _Unfit:
    put_back = {replay.index for replay in replays}
    marked_M = tuple(
        synthetic(message, _mode(rewritten.served, message), rewritten.markers.replayed(at))
        if at in put_back
        else message
        for at, message in enumerate(rewritten.new_M)
    )
    laid = _laid_out(rewritten, marked_M)
    if isinstance(laid, Refusal):
        return laid
    places = _places(rewritten, openings, laid, replays)
    if isinstance(places, _Unfit):
        return places
    frame = framed(marked_M, rewritten.ending, rewritten.markers, rewritten.served.facts.form)
    bodies = _bodies(rewritten, laid, frame)
    runs = _runs(rewritten, laid, places, bodies)
    if isinstance(runs, _Unfit | Refusal):
        return runs
    notes = (*_notes(rewritten, laid.text, frame, bodies, replays), *control_text_notes(rewritten.served, marked_M))
    bridge = Bridge(
        kind=BridgeKind.REAL_HISTORY,
        kept_T=runs[0].kept,
        added_A=join(_ids(runs, replays)),
        segments=_segments(runs),
        text=laid.text[places[-1].end :],
        notes=notes,
    )
    return MultiSplice(bridge, tuple(replays))


def _laid_out(rewritten: _Rewritten, new_M: tuple[Message, ...]) -> _Laid | Refusal:
    served, scene, held = rewritten.served, rewritten.scene, rewritten.held
    if held is None:
        text = _from_the_start(rewritten, new_M)
        return text if isinstance(text, Refusal) else _Laid(text, Mode.CONTENT, new_M)
    outlook = Outlook(held.message, new_M, rewritten.ending, rewritten.markers)
    refused: list[Refusal] = []
    for mode in dict.fromkeys((_mode(served, held.message), Mode.CONTENT)):
        behind = tail(served, scene, held.history_M, outlook, mode)
        if isinstance(behind, str):
            return _Laid(behind, mode, new_M)
        refused.append(behind)
    return refused[0]


def _from_the_start(rewritten: _Rewritten, new_M: tuple[Message, ...]) -> str | Refusal:
    generation = GenerationPrompt.ADD
    if rewritten.ending is Ending.CONTINUE:
        new_M = (*new_M[:-1], left_open(new_M[-1], rewritten.markers.end))
        generation = GenerationPrompt.OMIT
    try:
        text = render(rewritten.served, rewritten.scene, new_M, generation)
    except TemplateFailed as failure:
        return Refusal(RerenderReason.TEMPLATE_ERROR, str(failure))
    if rewritten.ending is Ending.ANSWER:
        return text
    parts = split_once(text, rewritten.markers.end, "the message to be continued")
    return parts if isinstance(parts, Refusal) else parts[0]


def _places(rewritten: _Rewritten, openings: Openings, laid: _Laid, replays: Sequence[Replay]) -> list[_Place] | _Unfit:
    """Where each answer stands; they stand once each and in order, each behind its opening."""
    spans: dict[str, list[int]] = {}
    for found in re.finditer(re.escape(rewritten.markers.stem) + "R[A-Z]+qz", laid.text):
        spans.setdefault(found[0], []).append(found.start())
    places: list[_Place] = []
    why: dict[int, str] = {}
    reached = measured = 0
    for replay in replays:
        marker = rewritten.markers.replayed(replay.index)
        starts = spans.get(marker, [])
        if len(starts) != 1 or starts[0] < reached:
            why[replay.index] = f"the template prints an answer {len(starts)} times, or elsewhere"
            continue
        span = (reached, starts[0])
        reached = starts[0] + len(marker)
        opened = _opened(rewritten, openings, laid, replay, span)
        if isinstance(opened, Refusal) and measured < _MEASURED_IN_PLACE:
            measured += 1
            opened = _opened_in_place(rewritten, laid, replay, span) or opened
        if isinstance(opened, Refusal):
            why[replay.index] = opened.detail
        else:
            places.append(_Place(replay, opened.at, opened.in_prompt, reached))
    return _Unfit(why) if why else places


def _opened(
    rewritten: _Rewritten, openings: Openings, laid: _Laid, replay: Replay, span: tuple[int, int]
) -> _Opened | Refusal:
    """Where in the text in front of an answer its opening begins, and what its prompt had there."""
    before, answer = rewritten.before(replay.index), rewritten.new_M[replay.index]
    if before is None:
        return Refusal(RerenderReason.TEMPLATE_ERROR, "no message stands before an answer")
    opening = openings.of(before, answer, _mode(rewritten.served, answer))
    if isinstance(opening, Refusal):
        return opening
    start, end = span
    for printed in opening.in_history:
        if laid.text.endswith(printed, start, end):
            return _Opened(end - len(printed), opening.in_prompt)
    return Refusal(RerenderReason.SENTINEL_LOST, "the template opens an answer otherwise than in a small conversation")


def _opened_in_place(rewritten: _Rewritten, laid: _Laid, replay: Replay, span: tuple[int, int]) -> _Opened | None:
    """The same, read off the conversation that ends in front of the answer: for templates that count calls."""
    prompt = _laid_out(msgspec.structs.replace(rewritten, ending=Ending.ANSWER), laid.new_M[: replay.index])
    if isinstance(prompt, Refusal) or not laid.text.startswith(prompt.text):
        return None
    at = len(prompt.text)
    return _Opened(at, "") if span[0] < at <= span[1] else None


def _runs(
    rewritten: _Rewritten, laid: _Laid, places: Sequence[_Place], bodies: tuple[Body, ...]
) -> list[_Run] | _Unfit | Refusal:
    """The texts in front of each answer, and behind the last one, as ids."""
    texts = _Texts(laid.text, bodies, tuple(places))
    first = _first_run(rewritten, laid, texts)
    if isinstance(first, Refusal):
        return first
    runs = [first]
    why: dict[int, str] = {}
    for at, place in enumerate(places):
        run = _run_behind(rewritten, place, texts, at)
        if isinstance(run, Refusal):
            why[place.replay.index] = run.detail
        else:
            runs.append(run)
    return _Unfit(why) if why else runs


class _Texts(msgspec.Struct, frozen=True):
    """The texts between answers."""

    text: str
    bodies: tuple[Body, ...]
    places: tuple[_Place, ...]

    def of(self, at: int) -> tuple[str, tuple[Body, ...]]:
        """The text in front of the answer with this index, or behind the last, and the bodies in it."""
        start = self.places[at - 1].end if at else 0
        last = self.places[at] if at < len(self.places) else None
        stop = len(self.text) if last is None else last.opens
        inside = tuple(
            Body(body.marker, body.start - start, body.end - start)
            for body in self.bodies
            if start <= body.start and body.end <= stop
        )
        return self.text[start:stop] + ("" if last is None else last.in_prompt), inside


def _first_run(rewritten: _Rewritten, laid: _Laid, texts: _Texts) -> _Run | Refusal:
    behind, bodies = texts.of(0)
    held = rewritten.held
    if held is not None:
        return _run(rewritten, held, laid.held_mode, behind, bodies)
    encoded = rewritten.served.tokenizer.encode_with_offsets(behind)
    said = sum(1 for _, end in encoded.offsets if end <= texts.places[0].opens)
    opened = len(encoded.ids) - said
    return _Run(0, encoded.ids, ((said, SegmentKind.PROMPT), (opened, SegmentKind.SCAFFOLD)))


def _run_behind(rewritten: _Rewritten, place: _Place, texts: _Texts, at: int) -> _Run | Refusal:
    replay = place.replay
    behind, bodies = texts.of(at + 1)
    answer = HeldAnswer(
        replay.ref, replay.ids_S, rewritten.new_M[replay.index], replay.cut, (), stop_string=replay.stop_string
    )
    run = _run(rewritten, answer, _mode(rewritten.served, answer.message), behind, bodies)
    if isinstance(run, _Run) and not (run.kept and run.ids_A):
        return Refusal(RerenderReason.CLOSING_MISMATCH, "nothing of an answer, or nothing behind it, would be there")
    return run


def _run(
    rewritten: _Rewritten, answer: HeldAnswer, mode: Mode, behind: str, bodies: tuple[Body, ...]
) -> _Run | Refusal:
    """The ids behind an answer whose own ids stay."""
    served, scene = rewritten.served, rewritten.scene
    closed = closing(served, scene, answer.message, mode)
    if isinstance(closed, Refusal) and answer.history_M:
        closed = closing_behind(served, scene, answer.history_M, answer.message, mode)
    boundary = closed if isinstance(closed, Refusal) else cut(served, closed, behind)
    if isinstance(boundary, Refusal):
        return boundary
    new = encode_new(served, boundary)
    if isinstance(new, Refusal):
        return new
    joined = join_to(served, scene, answer, boundary, mode)
    pieces = kinds(new.offsets_A[joined.skipped_A :], with_placeholders(served, new, bodies))
    return _Run(
        kept=joined.kept_T,
        ids_A=joined.close_C + new.ids_A.slice(joined.skipped_A),
        pieces=((len(joined.close_C), SegmentKind.SCAFFOLD), *pieces),
    )


def _ids(runs: Sequence[_Run], replays: Sequence[Replay]) -> Iterator[IdRun]:
    yield runs[0].ids_A
    for replay, run in zip(replays, runs[1:], strict=True):
        yield replay.ids_S.slice(0, run.kept)
        yield run.ids_A


def _segments(runs: Sequence[_Run]) -> tuple[Segment, ...]:
    pieces = list(runs[0].pieces)
    for run in runs[1:]:
        pieces += [(run.kept, SegmentKind.REPLAYED), *run.pieces]
    return tile(pieces)


def _bodies(rewritten: _Rewritten, laid: _Laid, frame: Framed) -> tuple[Body, ...]:
    if found := unmistakable(laid.text, frame.texts):
        return found
    framed_text = _laid_out(rewritten, frame.messages) if frame.texts else laid
    return () if isinstance(framed_text, Refusal) else bodies_in(laid.text, framed_text.text, frame.texts)


def _notes(
    rewritten: _Rewritten, text: str, frame: Framed, bodies: tuple[Body, ...], replays: Sequence[Replay]
) -> Iterator[Note]:
    held_cut = Cut.NONE if rewritten.held is None else rewritten.held.cut
    for was_cut in dict.fromkeys((held_cut, *(replay.cut for replay in replays))):
        if was_cut is not Cut.NONE:
            yield Note(NoteCode.SYNTHETIC_CLOSE, f"an answer was cut inside its {was_cut}")
    placed = {body.marker for body in bodies}
    put_back = {replay.index for replay in replays}
    for marker, at in frame.contents.items():
        if at not in put_back and marker not in placed and not survives(frame.texts[marker], text):
            yield Note(NoteCode.CONTENT_LOST, f"new message {at} ({frame.messages[at].role})")
