"""Matching: the deepest held answer that a request builds on, and why it is no plain continuation if it is none.

What counts as equal stands in `equality`, what a departure is called in `departure`. A request is compared with
the forest alone: there is no cursor that earlier requests move, so calls of several agents may arrive in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from turnstile.conversation import Call, Ending, Message, Role
from turnstile.generation import Head, HeldAnswer, Match, Note, Replay, listed
from turnstile.history.departure import Request, departure
from turnstile.history.digest import head_key, weak
from turnstile.history.equality import NO_POSITION, Different, ToolDefaults, compare_answers
from turnstile.history.forest import Forest
from turnstile.history.node import Node
from turnstile.history.recognised import is_named, recognised
from turnstile.history.replays import Recogniser, replays_of
from turnstile.history.walk import Walk, walk
from turnstile.reasons import NoteCode


class _Agreement(msgspec.Struct, frozen=True):
    """A completion whose path the request repeats, message for message."""

    node: Node
    length_M: int
    forgiven: tuple[tuple[int, NoteCode], ...]
    """Index among the spoken messages, and what had to be overlooked there."""


class _Choice(msgspec.Struct, frozen=True):
    """The completion that is built on, and what was noticed on the way to it."""

    agreement: _Agreement | None = None
    incomplete_M: int | None = None
    """Index of a deeper answer that was matched but has no trustworthy ids."""
    notes: tuple[Note, ...] = ()


def match(forest: Forest, head: Head, call: Call) -> Match:
    """The deepest held answer whose handed-out message, and everything before it, the request repeats.

    Args:
        forest: what is held. Only its memory of spellings grows.
        head: the head under which the request is rendered.
        call: the request.

    Returns:
        A snapshot. `new_M` are the request's messages behind the parent, with one held answer in one message and
        the results of the parent's calls under the ids that those were handed out with. `covered_M` and the length
        of `new_M` add up to the number of the request's messages. Without a parent, `new_M` is the whole request.
    """
    defaults = ToolDefaults(call.tools)
    known = recognised(forest, call.messages)
    walked = walk(forest, head_key(head.fingerprint), known.messages, defaults)
    choice = _choose(forest, walked, defaults)
    parent = None if choice.agreement is None else choice.agreement.node
    covered_spoken_M = 0 if choice.agreement is None else choice.agreement.length_M
    new_M = _for_rendering(walked, covered_spoken_M, parent)
    recogniser = Recogniser(forest, head.fingerprint, defaults, None if parent is None else parent.ref)
    replays = replays_of(recogniser, _answers_behind(walked, covered_spoken_M, call.ending))
    request = Request(forest, head, walked, defaults, parent, covered_spoken_M, choice.incomplete_M)
    return Match(
        parent=None if parent is None else _held_answer(parent),
        covered_M=len(call.messages) - len(new_M),
        new_M=new_M,
        departure=departure(request),
        notes=(
            *choice.notes,
            *_notes_on_new(forest, walked, covered_spoken_M, call.ending, replays),
            *_notes_on_ids(call.messages),
            *listed({NoteCode.REASONING_RESTORED: known.restored_M} if known.restored_M else {}),
            *_notes_on_parent(parent),
        ),
        replays=replays,
    )


def _notes_on_parent(parent: Node | None) -> tuple[Note, ...]:
    """That the request goes on from an answer that broke off."""
    notes = () if parent is None else parent.choice.notes
    return tuple(note for note in notes if note.code is NoteCode.CONTINUED_FROM_ABORTED)


def _held_answer(node: Node) -> HeldAnswer:
    return HeldAnswer(
        ref=node.ref,
        held_T=node.held_T,
        message=node.message,
        cut=node.choice.cut,
        history_M=node.history_M,
        stop_string=node.choice.stop_string,
        counted=node.past,
        sampled_count=len(node.choice.ids_S),
    )


def _choose(forest: Forest, walked: Walk, defaults: ToolDefaults) -> _Choice:
    incomplete_M: int | None = None
    for length_M in range(walked.held_length_M, 0, -1):
        prefix = forest.index.get(walked.keys[length_M])
        if prefix is None or not prefix.answers:
            continue
        agreed = [agreement for node in prefix.answers if (agreement := _agreement(node, walked, defaults)) is not None]
        trusted = [agreement for agreement in agreed if not agreement.node.is_incomplete]
        if trusted:
            best, notes = _best(forest, trusted, walked)
            if walked.repeat is None or walked.repeat.node is not best.node:
                forest.echoes.remember(best.node, walked.spoken_M, best.forgiven)
            return _Choice(best, incomplete_M, (*notes, *_notes_on_path(best, walked)))
        if agreed and incomplete_M is None:
            incomplete_M = length_M - 1
    return _Choice(None, incomplete_M)


def _best(forest: Forest, agreed: Sequence[_Agreement], walked: Walk) -> tuple[_Agreement, tuple[Note, ...]]:
    """The one whose ids came back; else the one that needs least to be overlooked, was delivered, is the latest."""
    if len(agreed) == 1:
        return agreed[0], ()
    anchors = [_anchors(forest, agreement, walked) for agreement in agreed]

    def rank(at: int) -> tuple[int, int, bool, int]:
        was_delivered = forest.calls[agreed[at].node.ref.call_id].undelivered is None
        return (anchors[at], -len(agreed[at].forgiven), was_delivered, at)

    chosen = max(range(len(agreed)), key=rank)
    best = agreed[chosen]
    equals = [at for at, agreement in enumerate(agreed) if len(agreement.forgiven) == len(best.forgiven)]
    if len(equals) == 1:
        return best, ()
    rivals = max(anchors[at] for at in equals if at != chosen)
    how = "its signature or ids of its calls came back" if anchors[chosen] > rivals else "the latest that was delivered"
    return best, (Note(NoteCode.MATCH_AMBIGUOUS, f"{len(equals)} equal answers, took {best.node.ref}: {how}"),)


def _agreement(end: Node, walked: Walk, defaults: ToolDefaults) -> _Agreement | None:
    """Compare the answers of a path with those of the request; None if one was edited.

    The keys are equal, so the path has as many messages and all that are no answers are equal.
    """
    forgiven: list[tuple[int, NoteCode]] = []
    for at, held, node in _answers(end):
        if walked.repeat is not None and walked.repeat.node is node:
            forgiven += walked.repeat.forgiven
            break
        sent = walked.spoken_M[at]
        verdict = walked.verdict(at, node) or compare_answers(held, sent, defaults)
        if isinstance(verdict, Different):
            return None
        forgiven += ((at, code) for code in verdict.forgiven)
    return _Agreement(end, end.length_M, tuple(forgiven))


def _anchors(forest: Forest, agreement: _Agreement, walked: Walk) -> int:
    """How many calls on a path came back under the id that they were handed out with, and answers under their mark."""
    named = sum(
        1
        for at, _, node in _answers(agreement.node)
        if node is not None and is_named(forest, node, walked.spoken_M[at])
    )
    pairs = (
        (was.call_id, now.call_id)
        for at, held, node in _answers(agreement.node)
        if node is not None
        for was, now in zip(held.calls, walked.spoken_M[at].calls, strict=True)
    )
    return named + sum(1 for was, now in pairs if was and was == now)


def _answers(end: Node) -> Iterable[tuple[int, Message, Node | None]]:
    """Index, message and completion (None: the client wrote it) of a path's assistant messages, last first."""
    for node, start, at, has_answer in end.steps_back():
        if has_answer:
            yield at, node.message, node
        for offset, message in enumerate(node.own_M):
            if message.role is Role.ASSISTANT:
                yield start + offset, message, None


def _for_rendering(walked: Walk, covered_spoken_M: int, parent: Node | None) -> tuple[Message, ...]:
    """The messages behind the parent, results of its calls under the calls' own ids."""
    new_M = walked.spoken_M[covered_spoken_M:]
    if parent is None:
        return tuple(new_M)
    calls = parent.message.calls
    for at, message in enumerate(new_M):
        if message.role is Role.ASSISTANT:
            break
        position = walked.positions_M[covered_spoken_M + at]
        if position != NO_POSITION and message.call_id != calls[position].call_id:
            new_M[at] = msgspec.structs.replace(message, call_id=calls[position].call_id)
    return tuple(new_M)


def _notes_on_path(agreement: _Agreement, walked: Walk) -> tuple[Note, ...]:
    found: dict[NoteCode, list[int]] = {}
    for at, code in sorted(agreement.forgiven):
        found.setdefault(code, []).append(walked.origins_M[at])
    split = sorted(walked.origins_M[at] for at in walked.split_M if at < agreement.length_M)
    if split:
        found[NoteCode.SPLIT_PARALLEL_CALLS] = split
    as_text = NoteCode.TOOL_JSON_INVALID
    if any(note.code is as_text for note in agreement.node.choice.notes) and not agreement.node.message.calls:
        found[NoteCode.CALL_AS_TEXT] = [walked.origins_M[agreement.length_M - 1]]
    return listed(found)


def _answers_behind(walked: Walk, covered_spoken_M: int, ending: Ending) -> Iterator[tuple[Message, int, int]]:
    """The assistant messages behind the held prefix, with their places there and in the client's list."""
    last_M = len(walked.spoken_M) - (1 if ending is Ending.CONTINUE else 0)
    for at in range(covered_spoken_M, last_M):
        if walked.spoken_M[at].role is Role.ASSISTANT:
            yield walked.spoken_M[at], at - covered_spoken_M, walked.origins_M[at]


def _notes_on_new(
    forest: Forest, walked: Walk, covered_spoken_M: int, ending: Ending, replays: Sequence[Replay]
) -> tuple[Note, ...]:
    """What is rendered as text for certain; planning says what becomes of the answers in `replays`."""
    told = {replay.index for replay in replays}
    found: dict[NoteCode, list[int]] = {}
    for message, at, message_index in _answers_behind(walked, covered_spoken_M, ending):
        if at in told:
            continue
        was_ours = bool(forest.index.heads_of_answer(weak(message)))
        code = NoteCode.RERENDERED_HISTORY if was_ours else NoteCode.INJECTED_ASSISTANT
        found.setdefault(code, []).append(message_index)
    return listed(found)


def _notes_on_ids(messages: Sequence[Message]) -> tuple[Note, ...]:
    """Ids that name more than one call: their results are paired by position, and they anchor nothing."""
    seen: set[str] = set()
    again: dict[int, None] = {}
    for at, message in enumerate(messages):
        for call in message.calls:
            if call.call_id and call.call_id in seen:
                again[at] = None
            seen.add(call.call_id)
    return listed({NoteCode.TOOL_ID_DUPLICATE: tuple(again)} if again else {})
