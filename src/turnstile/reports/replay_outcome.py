"""What a replay shows: each call's prompt then and now, and what became of the rollout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, assert_never

import msgspec

from turnstile.generation import Forked, Head, History, Rerendered, Root, Spliced, history_header
from turnstile.history.calls import CallState
from turnstile.history.forest import Forest
from turnstile.reports.drift_sources import prompt_ids
from turnstile.reports.replay import Replayed
from turnstile.tokens import IdRun, first_difference

_BEFORE, _BEHIND = 2, 10
"""Ids shown before a difference and from it on."""

Decode: TypeAlias = Callable[[Head, IdRun], str]


class PromptDifference(msgspec.Struct, frozen=True):
    """Where a prompt parts from the recorded one."""

    index: int
    """First token that differs."""
    then: str
    """The recorded text from two ids before it on."""
    now: str
    """The text that the same place has now."""
    then_ids: tuple[int, ...]
    """The recorded ids from there on, at most ten."""
    now_ids: tuple[int, ...]


class CallReplay(msgspec.Struct, frozen=True):
    """One recorded call and its replay."""

    call_id: str
    then: str
    """How its prompt came about, as `x-turnstile-history` said it."""
    now: str
    """The same of the replay; `refused:CODE` if it could not be planned."""
    then_tokens: int
    now_tokens: int
    difference: PromptDifference | None
    """None: the ids are equal, or there are none now."""
    ended: str
    """`answered`, `failed:REASON`, or `open` where the record breaks off."""
    problem: str = ""
    """Why it could not be planned."""

    @property
    def is_equal(self) -> bool:
        """Whether the replayed prompt is the recorded one."""
        return self.difference is None and not self.problem


class Skipped(msgspec.Struct, frozen=True):
    """What was recorded and is not replayed."""

    what: str
    why: str


class Side(msgspec.Struct, frozen=True):
    """A rollout in numbers, then or now."""

    calls: int
    """Planned."""
    sequences: int
    roots: int
    forks: int
    rerenders: int
    prompt_tokens: int
    """Of all planned prompts."""
    sequence_tokens: int
    """Of all sequences."""


class ReplayReport(msgspec.Struct, frozen=True):
    """What a replay shows of one attempt of a rollout."""

    rollout_id: str
    attempt: int
    calls: tuple[CallReplay, ...]
    differing: int
    """Calls whose prompt is another now, or could not be planned."""
    skipped: tuple[Skipped, ...]
    then: Side
    now: Side


def outcome(replayed: Replayed, decode: Decode) -> ReplayReport:
    """Compare what was recorded with what was replayed. `decode` gives the text of ids under a recorded head."""
    then = replayed.then
    assert then.opened is not None
    calls = tuple(_call(state, replayed, decode) for state in then.calls.values())
    return ReplayReport(
        rollout_id=then.opened.rollout_id,
        attempt=then.opened.attempt,
        calls=calls,
        differing=sum(not call.is_equal for call in calls),
        skipped=tuple(_skipped(then)),
        then=_side(then),
        now=_side(replayed.now),
    )


def _call(state: CallState, replayed: Replayed, decode: Decode) -> CallReplay:
    started = state.started
    then_T = prompt_ids(replayed.then, started)
    again = replayed.now.calls.get(started.call_id)
    refused = replayed.refused.get(started.call_id)
    now_T = prompt_ids(replayed.now, again.started) if again is not None else None
    head = replayed.then.heads[started.head]
    return CallReplay(
        call_id=started.call_id,
        then=history_header(started.history),
        now=history_header(again.started.history)
        if again is not None
        else f"refused:{refused.code if refused else ''}",
        then_tokens=len(then_T),
        now_tokens=len(now_T) if now_T is not None else 0,
        difference=_difference(then_T, now_T, lambda ids: decode(head, ids)) if now_T is not None else None,
        ended=_ended(state),
        problem=str(refused) if refused is not None else "",
    )


def _difference(then_T: IdRun, now_T: IdRun, decode: Callable[[IdRun], str]) -> PromptDifference | None:
    at = first_difference(then_T, now_T)
    if at is None:
        return None

    def window(ids_T: IdRun, start: int) -> IdRun:
        return ids_T.slice(start, min(len(ids_T), at + _BEHIND))

    start = max(0, at - _BEFORE)
    return PromptDifference(
        index=at,
        then=decode(window(then_T, start)),
        now=decode(window(now_T, start)),
        then_ids=tuple(window(then_T, at).tolist()),
        now_ids=tuple(window(now_T, at).tolist()),
    )


def _ended(state: CallState) -> str:
    if state.committed is not None:
        return "answered"
    return "open" if state.failed is None else f"failed:{state.failed.reason}"


def _skipped(then: Forest) -> Iterator[Skipped]:
    for failed in then.refused:
        yield Skipped("a request", f"it was refused before it was planned: {failed.problem}")
    for state in then.calls.values():
        for joined in state.joined:
            yield Skipped(f"a repeat of {joined.call_id}", f"it was {joined.how}: nothing was planned for it")
    for rejected in then.rejected:
        yield Skipped("a request", f"it came after the end: {rejected.reason}")


def _side(forest: Forest) -> Side:
    started = [state.started for state in forest.calls.values()]
    leaves = [node for node in forest.nodes if not node.children]
    kinds = [_kind(each.history) for each in started]
    return Side(
        calls=len(started),
        sequences=len(leaves),
        roots=kinds.count("roots"),
        forks=kinds.count("forks"),
        rerenders=kinds.count("rerenders"),
        prompt_tokens=sum(each.held_length + len(each.added_A) for each in started),
        sequence_tokens=sum(node.length for node in leaves),
    )


def _kind(history: History) -> str:
    match history:
        case Root():
            return "roots"
        case Spliced():
            return "spliced"
        case Forked():
            return "forks"
        case Rerendered():
            return "rerenders"
        case _:
            assert_never(history)
