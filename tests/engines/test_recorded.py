"""An engine that gives back recorded answers."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from turnstile.conversation import Message, ReplyFinish, Role, Usage
from turnstile.engines.recorded import RecordedEngine, recorded_generation
from turnstile.errors import EngineError
from turnstile.generation import Delta, Draw, Finish, Generation, Head, LogprobsMode, Prompt, Root
from turnstile.journal import SampledChoice
from turnstile.reasons import RootReason
from turnstile.tokens import NO_IDS, IdRun, LogprobRun

HEAD = Head("f", "m", "t", 10, "c", "{}", ())
PROMPT = Prompt(HEAD, None, NO_IDS, IdRun.of([1, 2, 3]), (), Root(RootReason.FIRST_CALL))
FIRST = SampledChoice(
    choice=0, ids_S=IdRun.of([4, 5]), logprobs_S=LogprobRun.of([-0.5, None]), message=Message(Role.ASSISTANT),
    reply_finish=ReplyFinish.STOP, finish=Finish.STOP, engine_finish_reason="stop", usage=Usage(99, 2),
    logprobs_mode=LogprobsMode.RAW, logprobs_temperature=1.0, engine_request_id="e", sampler_echo="{}", policy_min=3,
    policy_max=3,
)  # fmt: skip
SECOND = msgspec.structs.replace(FIRST, choice=1, ids_S=IdRun.of([6]), policy_max=4)


async def nobody(_: Delta) -> None:
    """Nobody listens."""


async def test_each_choice_is_given_back_with_the_prompts_own_length_once_it_is_released() -> None:
    engine = RecordedEngine((FIRST, SECOND))
    waiting = [asyncio.ensure_future(engine.generate(PROMPT, Draw(choice=at), nobody)) for at in (0, 1)]  # noqa: TID251
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    engine.release()
    first, second = [await each for each in waiting]
    assert first == Generation(
        FIRST.ids_S, FIRST.logprobs_S, Finish.STOP, "stop", Usage(3, 2), LogprobsMode.RAW, 1.0,
        engine_request_id="e", sampler_echo="{}", policy_version=3,
    )  # fmt: skip
    assert (second.ids_S, second.policy_version) == (SECOND.ids_S, None)
    assert recorded_generation(FIRST, 3) == first


async def test_a_call_that_failed_fails_again() -> None:
    engine = RecordedEngine(())
    engine.release()
    with pytest.raises(EngineError, match="failed when it was recorded"):
        await engine.generate(PROMPT, Draw(), nobody)


async def test_it_is_always_ready_and_refuses_no_parameter() -> None:
    engine = RecordedEngine(())
    assert await engine.health() == ""
    assert engine.capabilities.honours >= {"temperature", "stop", "logit_bias"}
    await engine.close()
