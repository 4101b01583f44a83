"""The one path: what is durable when, and how a call ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from turnstile.conversation import Answer, Call, Message, Role, Sampling, Text
from turnstile.errors import CallerError, TurnstileError
from turnstile.exchange.failures import Progress
from turnstile.exchange.inflight import Flight
from turnstile.exchange.policy_log import Announcement
from turnstile.exchange.repeats import Found, Repeat
from turnstile.exchange.rollouts import Opening, OpenRollout, Rollouts
from turnstile.exchange.run import run
from turnstile.exchange.world import World
from turnstile.generation import BridgeKind, Root, Spliced
from turnstile.history.forest import Forest
from turnstile.journal import CallFailed, CallStarted, RolloutOpened, TurnCommitted
from turnstile.reasons import FailReason, RootReason
from turnstile.store import Reader


def call(*messages: Message | str, **sampling: Any) -> Call:
    said = tuple(Message(Role.USER, (Text(each),)) if isinstance(each, str) else each for each in messages)
    return Call("openai.chat", "m", said, sampling=Sampling(**sampling))


@pytest.fixture
async def rollout(rollouts: Rollouts) -> OpenRollout:
    return await rollouts.create(Opening("r"), "")


async def flown(world: World, rollout: OpenRollout, call: Call) -> Flight:
    flight = rollout.take_off(call, f"digest of {call}")
    await run(world, rollout, call, flight, Progress("r", call.dialect))
    return flight


def stored(folder: Path) -> list[Any]:
    with Reader.open(folder) as reader:
        return list(reader.records("r"))


async def test_a_call_is_durable_before_the_engine_hears_of_it_and_its_turn_before_it_lands(
    world: World, rollout: OpenRollout, fake: Any, tmp_path: Path
) -> None:
    seen: list[list[type]] = []
    answer_ids = fake.ids("Hello.<|im_end|>")

    def answer(_: list[int]) -> list[int]:
        seen.append([type(record) for record in stored(tmp_path)])
        return answer_ids

    fake.answer = answer
    flight = await flown(world, rollout, call("Hi"))

    assert seen == [[RolloutOpened, CallStarted]]
    _, started, committed = stored(tmp_path)
    assert isinstance(committed, TurnCommitted)
    (choice,) = committed.choices
    assert choice.ids_S.tolist() == answer_ids
    assert (choice.policy_min, choice.policy_max) == (5, 5)
    assert (started.draw.seed, started.history, flight.history) == (11, started.history, Root(RootReason.FIRST_CALL))
    assert isinstance(flight.outcome, Answer)
    assert flight.outcome.replies[0].message == Message(Role.ASSISTANT, (Text("Hello."),))
    assert (rollout.repeats.running, rollout.forest) == ((), Forest.of(stored(tmp_path)))


async def test_the_next_turn_keeps_the_ids_of_the_one_before(world: World, rollout: OpenRollout, fake: Any) -> None:
    fake.script(fake.ids("One.<|im_end|>"), fake.ids("Two.<|im_end|>"))
    first = await flown(world, rollout, call("Hi"))
    assert isinstance(first.outcome, Answer)
    prompt = fake.requests[0]["prompt"]
    second = await flown(world, rollout, call("Hi", first.outcome.replies[0].message, "more"))
    assert second.history == Spliced(BridgeKind.SENTINEL)
    node, _ = rollout.forest.nodes
    assert node.held_T.tolist() == prompt + fake.ids("One.<|im_end|>")
    assert rollout.forest.nodes[1].held_T.startswith(node.held_T)


async def test_a_call_that_is_given_up_keeps_what_was_sampled_and_is_no_turn(
    world: World, rollout: OpenRollout, fake: Any, tmp_path: Path
) -> None:
    fake.script(fake.ids("word") * 500)
    fake.token_delay_s = 0.02
    asked = call("Hi")
    flight = rollout.take_off(asked, "d")
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run(world, rollout, asked, flight, Progress("r", "openai.chat")))
        await anext(flight.join().deltas(silence_s=10))
        task.cancel()
    failed = stored(tmp_path)[-1]
    assert isinstance(failed, CallFailed)
    assert (failed.reason, failed.call_id) == (FailReason.CLIENT_GONE, "c0")
    assert failed.partial_S.tolist()[:1] == fake.ids("word")
    assert isinstance(flight.outcome, TurnstileError)
    assert rollout.repeats.running == ()


async def test_a_request_that_cannot_be_served_fails_before_it_is_planned(
    world: World, rollout: OpenRollout, fake: Any, tmp_path: Path
) -> None:
    flight = await flown(world, rollout, call("Hi", top_logprobs=5000))
    failed = stored(tmp_path)[-1]
    assert (failed.call_id, failed.reason, fake.requests) == ("", FailReason.REFUSED, [])
    assert isinstance(flight.outcome, CallerError)
    assert rollout.repeats.find(call("Hi", top_logprobs=5000), flight.digest) == Found(Repeat.FRESH)


async def test_the_first_failure_of_several_choices_ends_them_all(
    world: World, rollout: OpenRollout, fake: Any, fakes: Any
) -> None:
    fake.faults.extend([fakes.Fault.ERROR_500, fakes.Fault.HANG])
    flight = await asyncio.wait_for(flown(world, rollout, call("Hi", choices=2)), 20)
    assert isinstance(flight.outcome, TurnstileError)
    assert flight.outcome.status == 500
    assert rollout.forest.node_count == 0


async def test_usage_counts_the_prompt_once_and_every_choice(world: World, rollout: OpenRollout, fake: Any) -> None:
    fake.script(fake.ids("One.<|im_end|>"), fake.ids("And two.<|im_end|>"))
    flight = await flown(world, rollout, call("Hi", choices=2))
    assert isinstance(flight.outcome, Answer)
    sampled = [len(node.choice.ids_S) for node in rollout.forest.nodes]
    assert flight.outcome.usage.completion_tokens == sum(sampled)
    assert flight.outcome.usage.prompt_tokens == len(fake.requests[0]["prompt"])


async def test_a_retry_of_a_failed_call_is_sampled_anew(
    world: World, rollout: OpenRollout, fake: Any, fakes: Any
) -> None:
    fake.faults.append(fakes.Fault.ERROR_500)
    failed = await flown(world, rollout, call("Hi"))
    fake.script(fake.ids("One.<|im_end|>"))
    again = await flown(world, rollout, call("Hi"))
    assert isinstance(failed.outcome, TurnstileError)
    assert isinstance(again.outcome, Answer)
    assert [state.committed is not None for state in rollout.forest.calls.values()] == [False, True]


async def test_a_version_that_is_announced_in_mid_call_makes_a_range(
    world: World, rollout: OpenRollout, fake: Any
) -> None:
    answer_ids = fake.ids("One.<|im_end|>")

    def answer(_: list[int]) -> list[int]:
        world.policy.take(world.policy.after(Announcement(6)))
        return answer_ids

    fake.answer = answer
    await flown(world, rollout, call("Hi"))
    (node,) = rollout.forest.nodes
    assert (node.choice.policy_min, node.choice.policy_max, node.choice.policy_ranges) == (5, 6, ())
