"""Small records of a rollout, by name of what happened."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from turnstile.conversation import Message, ReplyFinish, Role, Sampling, Text, Usage
from turnstile.generation import Draw, Finish, History, LogprobsMode, Root
from turnstile.journal import (
    CallFailed,
    CallStarted,
    RolloutFinished,
    RolloutOpened,
    RolloutStatus,
    SampledChoice,
    TurnCommitted,
)
from turnstile.reasons import FailReason, RootReason
from turnstile.tokens import IdRun, LogprobRun, Segment, SegmentKind

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


class Records:
    """Makes records; times count up from noon by one second a number."""

    def at(self, seconds: int) -> datetime:
        return NOON + timedelta(seconds=seconds)

    def opened(self, rollout_id: str, attempt: int = 1, group_id: str | None = None, task_id: str | None = None):
        return RolloutOpened(rollout_id, attempt, NOON, group_id=group_id, task_id=task_id)

    def started(self, rollout_id: str, call_id: str, history: History | None = None, added: int = 3) -> CallStarted:
        return CallStarted(
            rollout_id=rollout_id,
            call_id=call_id,
            started_at=self.at(1),
            dialect="openai.chat",
            head="f" * 64,
            new_head=None,
            engine="llamacpp",
            engine_version="1",
            parent=None,
            held_length=0,
            added_A=IdRun.of(range(added)),
            added_segments=(Segment(0, added, SegmentKind.PROMPT),),
            prompt_sha256=IdRun.of(range(added)).sha256(),
            history=history or Root(RootReason.FIRST_CALL),
            covered_M=0,
            new_M=(Message(Role.USER, (Text("2+2?"),)),),
            sampling=Sampling(),
            draw=Draw(),
            body_digest="0" * 64,
        )

    def committed(self, rollout_id: str, call_id: str, sampled: int = 2) -> TurnCommitted:
        choice = SampledChoice(
            choice=0,
            ids_S=IdRun.of(range(sampled)),
            logprobs_S=LogprobRun.of([-0.5] * sampled),
            message=Message(Role.ASSISTANT, (Text("4"),)),
            reply_finish=ReplyFinish.STOP,
            finish=Finish.STOP,
            engine_finish_reason="eos",
            usage=Usage(3, sampled),
            logprobs_mode=LogprobsMode.PROCESSED,
            logprobs_temperature=1.0,
        )
        return TurnCommitted(rollout_id, call_id, self.at(2), (choice,))

    def failed(self, rollout_id: str, call_id: str) -> CallFailed:
        return CallFailed(rollout_id, call_id, self.at(2), FailReason.ENGINE_UNREACHABLE, "The engine is down.")

    def finished(self, rollout_id: str, reward: float | None = None) -> RolloutFinished:
        return RolloutFinished(rollout_id, self.at(9), RolloutStatus.COMPLETED, reward=reward)


@pytest.fixture
def make() -> Records:
    return Records()
