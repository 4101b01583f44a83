"""What there is to say of one request of an agent when it is over: in figures and words of ours, never its content."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from turnstile.conversation import CallKind
from turnstile.exchange.timeline import Stage, Timeline
from turnstile.generation import history_header
from turnstile.history.calls import CallState
from turnstile.journal import CallStarted, RolloutOpened, SampledChoice, SuspectLogprobs
from turnstile.reasons import MaskReason, NoteCode
from turnstile.trajectory.sequences import recorded

ANSWERED = "answered"
CLIENT_GONE = "client_gone"
NO_STATUS = 0
"""Of a request whose client left before it was told anything."""


class Prompted(msgspec.Struct, frozen=True):
    """How a call was planned and what came of it."""

    history: str = "none"
    """`root`, `spliced`, `forked:REASON`, `rerendered:REASON`, or `none` of a call that was not planned."""
    prompt_ids: int = 0
    """Of the whole prompt, with one placeholder for each image."""
    reused_ids: int = 0
    """How many of those were held."""
    sampled_ids: int = 0
    """Of all choices; of a call that failed, what had come by then."""
    masked: Mapping[str, int] = {}
    """How many of those cannot be trained on, by reason, as far as that is known when the call ends."""
    finish: str = ""
    """Why the first choice ended."""
    engine: str = ""
    """Its name: host and port."""
    continuations: int = 0
    """How many times an answer was taken up again that the engine gave up."""
    moved: bool = False
    """Whether it went to another engine than the rollout's call before."""
    is_auxiliary: bool = False
    """Whether the harness made it for itself."""


class Took(msgspec.Struct, frozen=True):
    """Where the time went, in seconds; None: there was no such thing."""

    total_s: float
    """From the request's arrival to its answer's end, or to its client's leaving."""
    added_s: float | None = None
    """Turnstile's own part: all that was no wait for an engine, a queue, a held gate or the client's body. None: the
    request waited for another one's call."""
    queue_s: float | None = None
    hold_s: float | None = None
    plan_s: float | None = None
    engine_s: float | None = None
    first_token_s: float | None = None
    """From the first request to an engine to the first id."""
    stored_s: float | None = None
    """Both waits for the journal."""


class CallReport(msgspec.Struct, frozen=True):
    """One request of an agent."""

    rollout_id: str
    """As the request named it, if there is such a rollout or can be; else empty."""
    attempt: int
    """0: it belongs to none."""
    call_id: str
    """Empty: none was begun for it."""
    dialect: str
    path: str
    """As the dialect's table has it, `{model}` standing for whatever was named."""
    status: int
    """What was sent; 0: the client left before."""
    outcome: str
    """`answered`, the error's code, or `client_gone`."""
    repeat: str
    """`fresh`; `coalesced` or `replayed`, and then all but the times is of the call that it was answered by."""
    client_gone: bool
    """Whether the client left before the last byte."""
    prompted: Prompted
    took: Took


def prompted(state: CallState, opened: RolloutOpened) -> Prompted:
    """What the journal says of a call that was planned."""
    started = state.started
    choices = () if state.committed is None else state.committed.choices
    failed = 0 if state.failed is None else state.failed.partial_count
    masked: Counter[str] = Counter()
    for choice in choices:
        masked.update(masked_in(choice, started, opened.suspect_logprobs))
    if failed:
        masked[MaskReason.ABORTED.value] = failed
    return Prompted(
        history=history_header(started.history),
        prompt_ids=started.held_length + len(started.added_A),
        reused_ids=started.held_length,
        sampled_ids=sum(len(choice.ids_S) for choice in choices) or failed,
        masked=dict(masked),
        finish=choices[0].reply_finish.value if choices else "",
        engine=started.engine_name,
        continuations=sum(max(0, len(choice.engine_calls) - 1) for choice in choices),
        moved=any(note.code is NoteCode.ENGINE_MOVED for note in started.notes),
        is_auxiliary=started.kind is CallKind.AUXILIARY,
    )


def masked_in(choice: SampledChoice, started: CallStarted, suspects: SuspectLogprobs) -> Mapping[str, int]:
    """Ids of a choice that cannot be trained on, by reason, whatever the rest of the rollout will be.

    Source: `turnstile.trajectory.sequences`, which decides when the rollout is over; an answer that nobody took up or
    whose sequence is distrusted loses more ids then, and an auxiliary summary may be chosen for training.
    """
    length = len(choice.ids_S)
    unknown = recorded(choice).unknown
    if not length:
        return {}
    if started.kind is CallKind.AUXILIARY:
        return {MaskReason.AUXILIARY.value: length}
    if choice.incomplete or len(unknown) == length:
        return {MaskReason.INCOMPLETE_CALL.value: length}
    distrusted = any(note.code is NoteCode.LOGPROBS_ALL_ZERO for note in choice.notes)
    if distrusted and suspects is SuspectLogprobs.MASK:
        return {MaskReason.LOGPROB_SUSPECT.value: length}
    placeholders = len(choice.placeholders_S)
    missing = len(set(unknown).difference(choice.placeholders_S))
    found = {MaskReason.SAMPLED_PLACEHOLDER.value: placeholders, MaskReason.LOGPROB_MISSING.value: missing}
    return {reason: count for reason, count in found.items() if count}


def took(times: Timeline, total_s: float) -> Took:
    """Where the time of a request went that began a call of its own."""
    by_stage: dict[Stage, float] = {}
    for span in times.spans:
        if span.stage not in by_stage:
            by_stage[span.stage] = times.spent_ns(span.stage) / 1e9
    first_ns = times.first_token_after_ns
    return Took(
        total_s=total_s,
        added_s=times.added_ns / 1e9,
        queue_s=by_stage.get(Stage.QUEUE),
        hold_s=by_stage.get(Stage.HOLD),
        plan_s=by_stage.get(Stage.PLAN),
        engine_s=by_stage.get(Stage.ENGINE),
        first_token_s=None if first_ns is None else first_ns / 1e9,
        stored_s=by_stage.get(Stage.STORE),
    )
