"""A sequence as turns: what stood before each answer, and the messages that people read beside the ids.

The ids say nothing about messages, and one segment of context may hold several; so the boundaries between context
messages are not known, only those of the answers.
"""

from __future__ import annotations

from typing import cast

import msgspec

from turnstile.tokens import SegmentKind
from turnstile.trajectory.shapes import JsonObject, Rollout, Sequence, SequenceSegment


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled answer of a sequence, and what stands between it and the answer before."""

    context: tuple[JsonObject, ...]
    """Messages that stand before the answer, and behind the last one."""
    start: int
    """Token index of the first of their tokens."""
    opening: int
    """Of the first token of the scaffold that opens the answer."""
    answer: int
    """Of the first sampled token."""
    end: int
    """Behind the last one."""
    call: int
    """Index of the call that sampled it."""
    segments: tuple[SequenceSegment, ...]
    """Its sampled segments; several where only some are trained, or the policy changed within."""
    message: JsonObject | None
    """The answer as a message; None if it cannot be told which one it is."""


def turns_of(rollout: Rollout, sequence: Sequence) -> tuple[Turn, ...]:
    """The sampled answers of a sequence in order; what stands behind the last one belongs to none."""
    answers = _answers(sequence)
    messages = [rollout.messages[number] for number in sequence.messages]
    places = _places(messages, sequence, [answer[0].call for answer in answers])
    turns: list[Turn] = []
    start = told = 0
    for answer, place in zip(answers, places, strict=True):
        first, last = answer[0], answer[-1]
        context = () if place is None else tuple(messages[told:place])
        turns.append(
            Turn(
                context=context,
                start=start,
                opening=_opening(sequence, start, first.start),
                answer=first.start,
                end=last.end,
                call=-1 if first.call is None else first.call,
                segments=answer,
                message=None if place is None else messages[place],
            )
        )
        start, told = last.end, told if place is None else place + 1
    return tuple(turns)


def _answers(sequence: Sequence) -> list[tuple[SequenceSegment, ...]]:
    """The sampled segments, those of one call together."""
    answers: list[list[SequenceSegment]] = []
    for segment, _ in sequence.sampled_segments():
        if answers and answers[-1][-1].end == segment.start and answers[-1][-1].call == segment.call:
            answers[-1].append(segment)
        else:
            answers.append([segment])
    return [tuple(answer) for answer in answers]


def _opening(sequence: Sequence, start: int, answer: int) -> int:
    for segment in sequence.segments:
        if segment.end == answer and segment.kind == SegmentKind.SCAFFOLD and segment.start > start:
            return segment.start
    return answer


def _places(messages: list[JsonObject], sequence: Sequence, answers: list[int | None]) -> list[int | None]:
    """Which message each answer is, by order; the answers that stand replayed are messages too.

    Where the model was handed further assistant messages that it had not written, there are more of them than
    answers. Then only the last one is certain: a sequence ends with its last call's answer.
    """
    spoken = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
    drawn = [(segment.kind, segment.call) for segment in sequence.segments if segment.call is not None]
    distinct = list(dict.fromkeys(drawn))
    if len(distinct) == len(spoken):
        place_of = dict(zip(distinct, spoken, strict=True))
        return [None if call is None else place_of[SegmentKind.SAMPLED.value, call] for call in answers]
    return [*[None] * (len(answers) - 1), spoken[-1]] if spoken and answers else [None] * len(answers)


def trained_runs(turn: Turn) -> list[tuple[int, int]]:
    """Token indices [start, end) of the runs of an answer that a loss may count, neighbours joined."""
    runs: list[tuple[int, int]] = []
    for segment in turn.segments:
        if segment.trainable:
            start = runs.pop()[0] if runs and runs[-1][1] == segment.start else segment.start
            runs.append((start, segment.end))
    return runs


def text_of(message: JsonObject) -> str:
    """The text of a message; images in it are left out."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = cast(list[JsonObject], content) if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")
