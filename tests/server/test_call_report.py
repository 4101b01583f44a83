"""What there is to say of one request of an agent when it is over."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from turnstile.conversation import CallKind, Message, ReplyFinish, Role, Sampling, Usage
from turnstile.exchange.timeline import Span, Stage, Timeline
from turnstile.generation import Draw, Finish, Forked, LogprobsMode, Note
from turnstile.history.calls import CallState
from turnstile.journal import (
    CallFailed,
    CallStarted,
    EngineCall,
    RolloutOpened,
    SampledChoice,
    SuspectLogprobs,
    TurnCommitted,
)
from turnstile.reasons import FailReason, ForkReason, IncompleteReason, NoteCode
from turnstile.server.call_report import Prompted, Took, masked_in, prompted, took
from turnstile.tokens import IdRun, LogprobRun

AT = datetime(2026, 1, 1, tzinfo=UTC)
OPENED = RolloutOpened("r", 1, AT)
STARTED = CallStarted(
    rollout_id="r",
    call_id="c1",
    started_at=AT,
    dialect="openai.chat",
    head="h",
    new_head=None,
    engine="vllm",
    engine_version="1",
    parent=None,
    held_length=100,
    added_A=IdRun.of(range(7)),
    added_segments=(),
    prompt_sha256="",
    history=Forked(ForkReason.MESSAGE_EDITED),
    covered_M=0,
    new_M=(),
    sampling=Sampling(),
    draw=Draw(max_tokens=5),
    body_digest="d",
    engine_name="a:1",
    notes=(Note(NoteCode.ENGINE_MOVED, "b:1 -> a:1"),),
)
CHOICE = SampledChoice(
    choice=0,
    ids_S=IdRun.of(range(4)),
    logprobs_S=LogprobRun.of([-1.0, -2.0, -3.0, -4.0]),
    message=Message(Role.ASSISTANT),
    reply_finish=ReplyFinish.TOOL_CALLS,
    finish=Finish.STOP,
    engine_finish_reason="stop",
    usage=Usage(107, 4),
    logprobs_mode=LogprobsMode.RAW,
    logprobs_temperature=1.0,
)


def changed(**fields: object) -> SampledChoice:
    return msgspec.structs.replace(CHOICE, **fields)


DISTRUSTED = changed(incomplete=(IncompleteReason.STOP_UNKNOWN,))
SUSPECT = changed(notes=(Note(NoteCode.LOGPROBS_ALL_ZERO),))


def test_an_answered_call_is_told_by_its_ids_its_history_and_its_engine() -> None:
    continued = changed(engine_calls=(EngineCall(1), EngineCall(2), EngineCall(1)))
    state = CallState(STARTED, TurnCommitted("r", "c1", AT, (continued, changed(choice=1))))
    assert prompted(state, OPENED) == Prompted(
        history="forked:message_edited",
        prompt_ids=107,
        reused_ids=100,
        sampled_ids=8,
        finish="tool_calls",
        engine="a:1",
        continuations=2,
        moved=True,
    )


def test_what_a_failed_call_had_sampled_is_masked_as_aborted() -> None:
    failed = CallFailed("r", "c1", AT, FailReason.ENGINE_BROKEN, "x", partial_S=IdRun.of(range(3)))
    told = prompted(CallState(STARTED, failed=failed), OPENED)
    assert (told.sampled_ids, told.masked, told.finish) == (3, {"aborted": 3}, "")


@pytest.mark.parametrize(
    ("choice", "kind", "suspects", "masked"),
    [
        (CHOICE, CallKind.TURN, SuspectLogprobs.MARK, {}),
        (CHOICE, CallKind.AUXILIARY, SuspectLogprobs.MARK, {"auxiliary": 4}),
        (changed(ids_S=IdRun(), logprobs_S=None), CallKind.AUXILIARY, SuspectLogprobs.MARK, {}),
        (
            changed(incomplete=(IncompleteReason.STOP_UNKNOWN,)),
            CallKind.TURN,
            SuspectLogprobs.MARK,
            {"incomplete_call": 4},
        ),
        (changed(logprobs_S=None), CallKind.TURN, SuspectLogprobs.MARK, {"incomplete_call": 4}),
        (
            changed(logprobs_S=LogprobRun.of([-1.0, None, None, -1.0]), placeholders_S=(2,)),
            CallKind.TURN,
            SuspectLogprobs.MARK,
            {"sampled_placeholder": 1, "logprob_missing": 1},
        ),
        (
            changed(notes=(Note(NoteCode.LOGPROBS_ALL_ZERO),)),
            CallKind.TURN,
            SuspectLogprobs.MASK,
            {"logprob_suspect": 4},
        ),
        (SUSPECT, CallKind.TURN, SuspectLogprobs.MARK, {}),
    ],
)
def test_ids_that_can_never_be_trained_on_are_told_by_reason(
    choice: SampledChoice, kind: CallKind, suspects: SuspectLogprobs, masked: dict[str, int]
) -> None:
    assert masked_in(choice, msgspec.structs.replace(STARTED, kind=kind), suspects) == masked


def test_times_that_there_were_not_are_not_told() -> None:
    times = Timeline()
    times.began_ns, times.landed_ns = 0, 2_000_000_000
    assert took(times, 3.0) == Took(3.0, added_s=2.0)
    times.spans += [
        Span(Stage.PLAN, 0, 100_000_000),
        Span(Stage.STORE, 100_000_000, 200_000_000),
        Span(Stage.QUEUE, 200_000_000, 300_000_000),
        Span(Stage.HOLD, 300_000_000, 400_000_000),
        Span(Stage.ENGINE, 400_000_000, 1_900_000_000),
        Span(Stage.STORE, 1_900_000_000, 2_000_000_000),
    ]
    times.first_token_ns = 500_000_000
    assert took(times, 3.0) == Took(
        total_s=3.0,
        added_s=0.3,
        queue_s=0.1,
        hold_s=0.1,
        plan_s=0.1,
        engine_s=1.5,
        first_token_s=0.1,
        stored_s=0.2,
    )
