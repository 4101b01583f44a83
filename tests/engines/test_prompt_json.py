"""Prompts as JSON."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given
from hypothesis import strategies as st

from turnstile.engines.prompt_json import PromptJson, ids_json
from turnstile.tokens import IdRun

PROMPTS = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.lists(st.integers(0, 9), min_size=1, max_size=6)))


@given(PROMPTS, st.integers(0, 200))
async def test_whatever_was_asked_before_the_json_is_the_prompts_own(
    prompts: list[tuple[str, list[int]]], kept_bytes: int
) -> None:
    writer = PromptJson(kept_bytes)
    grown: dict[str, list[int]] = {}
    for affinity, ids in prompts:
        for prompt in (ids, [*grown.get(affinity, []), *ids]):
            assert json.loads(b"[" + await writer.of(affinity, IdRun.of(prompt)) + b"]") == prompt
            grown[affinity] = prompt


async def test_a_longer_prompt_of_the_same_conversation_is_written_from_where_the_last_one_ended() -> None:
    writer = PromptJson()
    first = await writer.of("r", IdRun.of([1, 2]))
    assert (first, await writer.of("r", IdRun.of([1, 2, 3])), await writer.of("r", IdRun.of([1, 2, 3]))) == (
        b"1,2",
        b"1,2,3",
        b"1,2,3",
    )


async def test_a_conversation_that_has_been_quiet_for_ten_minutes_is_forgotten() -> None:
    now = iter([0.0, 1.0, 600.5, 601.5])
    writer = PromptJson(clock=lambda: next(now))
    remembered = []
    for affinity in ("over", "slow", "slow", "new"):
        await writer.of(affinity, IdRun.of([1]))
        remembered.append(writer.remembered)
    assert remembered == [("over",), ("over", "slow"), ("slow",), ("slow", "new")]


async def test_the_longest_quiet_conversation_goes_where_bytes_run_out() -> None:
    writer = PromptJson(kept_bytes=2 * (4 + 1))
    for affinity in ("a", "b", "a", "c"):
        await writer.of(affinity, IdRun.of([1]))
    assert writer.remembered == ("a", "c")


async def test_a_prompt_of_millions_of_ids_is_written_while_the_event_loop_goes_on() -> None:
    ids = list(range(1, 2_000_001))
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        turning = tasks.create_task(turn())
        written = await PromptJson().of("r", IdRun.of(ids))
        turning.cancel()
    assert json.loads(b"[" + written + b"]") == ids
    assert turns > 3


async def test_two_prompts_of_a_conversation_that_are_written_at_once_are_remembered_as_one() -> None:
    long = IdRun.of([1] * 20_000)
    writer = PromptJson(kept_bytes=2 * (4 * 20_000 + 2 * 20_000))
    await asyncio.gather(*(writer.of("a", long) for _ in range(2)))
    await writer.of("b", long)
    assert writer.remembered == ("a", "b")


def test_ids_are_written_without_blanks() -> None:
    assert ids_json([5, 60, 700]) == b"5,60,700"
