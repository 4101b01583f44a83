"""A prompt is planned without leaving a trace."""

from __future__ import annotations

from typing import Any

import pytest

from turnstile.conversation import Call, Image, Message, Role, Text
from turnstile.errors import CallerError
from turnstile.exchange.failures import Progress
from turnstile.exchange.prompts import prompt_for
from turnstile.exchange.rollouts import Opening, Rollouts
from turnstile.exchange.run import run
from turnstile.exchange.world import World
from turnstile.generation import BridgeKind, Root, Spliced
from turnstile.reasons import RootReason


def call(*messages: Message) -> Call:
    return Call("openai.chat", "m", messages)


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


async def test_a_prompt_is_the_one_that_the_call_is_then_sampled_from_and_nothing_is_recorded(
    world: World, rollouts: Rollouts, fake: Any
) -> None:
    rollout = await rollouts.create(Opening("r"), "")
    fake.script(fake.ids("Hello<|im_end|>"), fake.ids("Yes<|im_end|>"))
    first = await prompt_for(world, rollout.forest, rollout.opened, call(user("Hi")))
    assert (first.prompt.history, len(rollout.forest.calls)) == (Root(RootReason.FIRST_CALL), 0)

    for said in (call(user("Hi")), call(user("Hi"), Message(Role.ASSISTANT, (Text("Hello"),)), user("sure?"))):
        planned = await prompt_for(world, rollout.forest, rollout.opened, said)
        await run(world, rollout, said, rollout.take_off(said, str(said)), Progress("r", said.dialect))
        assert fake.requests[-1]["prompt"] == planned.prompt.ids_T.tolist()
    assert planned.prompt.history == Spliced(BridgeKind.SENTINEL)
    assert len(rollout.forest.calls) == 2


async def test_what_the_engine_cannot_be_given_is_refused(world: World, rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening("r"), "")
    with pytest.raises(CallerError) as caught:
        await prompt_for(world, rollout.forest, rollout.opened, call(Message(Role.USER, (Image("a", "image/png"),))))
    assert caught.value.code == "images_not_supported"
