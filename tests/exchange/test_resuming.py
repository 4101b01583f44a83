"""Broken-off answers that a request goes on from, over the real wire."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.conversation import Call, Message, Role, Text, ToolSpec
from turnstile.exchange.failures import Progress
from turnstile.exchange.inflight import Flight
from turnstile.exchange.rollouts import Opening, OpenRollout, Rollouts
from turnstile.exchange.run import run
from turnstile.exchange.world import World
from turnstile.generation import BridgeKind, Spliced
from turnstile.history.forest import Forest
from turnstile.journal import AnswerResumed, CallFailed
from turnstile.reasons import DiscardReason
from turnstile.store import Reader
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.validate import validate

LS = ToolSpec("ls", '{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}')
CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'


def call(*messages: Message, **changes: Any) -> Call:
    return Call("openai.chat", "m", (Message(Role.USER, (Text("go"),)), *messages), tools=(LS,), **changes)


@pytest.fixture
async def rollout(rollouts: Rollouts) -> OpenRollout:
    return await rollouts.create(Opening("r"), "")


@pytest.fixture
async def kept(world: World, rollout: OpenRollout, fake: Any, fakes: Any) -> Message:
    """What a client keeps of an answer that broke off behind its first call."""
    ids = fake.ids(f"Look.\n{CALL}\n<tool_call>" + "word " * 100)
    fake.script(ids)
    fake.slow_s = 0.0
    fake.faults.extend([fakes.Fault.SLOW] * 3 + [fakes.Fault.HALF_BODY])
    await flown(world, rollout, call())
    (state,) = rollout.forest.calls.values()
    assert isinstance(state.failed, CallFailed)
    (known,) = state.failed.partials
    assert known.logprobs_S is not None
    assert len(known.logprobs_S) == len(state.failed.partial_S)
    text, called = (item.said for item in known.items)
    return msgspec.structs.replace(text, calls=called.calls)


async def flown(world: World, rollout: OpenRollout, asked: Call) -> Flight:
    flight = rollout.take_off(asked, f"digest of {asked}")
    await run(world, rollout, asked, flight, Progress("r", asked.dialect))
    return flight


def result(kept: Message) -> Message:
    return Message(Role.TOOL, (Text("b"),), call_id=kept.calls[0].call_id)


def stored(folder: Path) -> list[Any]:
    with Reader.open(folder) as reader:
        return list(reader.records("r"))


async def test_the_beginning_is_durable_before_the_prompt_that_is_built_on_it(
    world: World, rollout: OpenRollout, fake: Any, kept: Message, tmp_path: Path
) -> None:
    fake.script(fake.ids("Done.<|im_end|>"))
    flight = await flown(world, rollout, call(kept, result(kept)))
    assert flight.history == Spliced(BridgeKind.SENTINEL)
    resumed, started = stored(tmp_path)[-3:-1]
    assert isinstance(resumed, AnswerResumed)
    assert started.parent.call_id == resumed.call_id == "c0"
    assert rollout.forest == Forest.of(stored(tmp_path))


async def test_two_requests_that_bring_the_same_items_back_share_one_beginning(
    world: World, rollout: OpenRollout, fake: Any, kept: Message, tmp_path: Path
) -> None:
    fake.script(fake.ids("One.<|im_end|>"), fake.ids("Two.<|im_end|>"))
    asked = call(kept, result(kept))
    await asyncio.gather(flown(world, rollout, asked), flown(world, rollout, asked))
    assert len(rollout.forest.nodes) == 3
    assert rollout.forest == Forest.of(stored(tmp_path))
    exported = assemble(rollout.forest)
    assert [each for each in validate(exported) if each.code.startswith("E")] == []
    tail = rollout.forest.calls["c0"].failed.partial_count - len(rollout.forest.nodes[0].choice.ids_S)
    assert exported.token_counts.discarded == {DiscardReason.ABORTED_TAIL.value: tail}
    assert exported.token_counts.masked == {}


async def test_a_beginning_that_no_prompt_was_built_on_is_discarded(
    world: World, rollout: OpenRollout, kept: Message, fake: Any
) -> None:
    refused = call(kept, result(kept))
    refused = msgspec.structs.replace(refused, sampling=msgspec.structs.replace(refused.sampling, top_logprobs=5000))
    await flown(world, rollout, refused)
    exported = assemble(rollout.forest)
    assert exported.token_counts.discarded == {"aborted_tail": rollout.forest.calls["c0"].failed.partial_count}
    assert (exported.sequences, exported.calls[0].kind_reason) == ((), "aborted_tail")
    assert [each for each in validate(exported) if each.code.startswith("E")] == []


async def test_a_restart_goes_on_from_what_broke_off_before_it(
    world: World, rollout: OpenRollout, fake: Any, kept: Message, reopen: Any
) -> None:
    del rollout
    again = await reopen().get("r")
    fake.script(fake.ids("Done.<|im_end|>"))
    flight = await flown(world, again, call(kept, result(kept)))
    assert flight.history == Spliced(BridgeKind.SENTINEL)
