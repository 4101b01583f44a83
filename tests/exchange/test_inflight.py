"""Who waits for which call, and when a repeat is a retry."""

from __future__ import annotations

import asyncio

import pytest

from turnstile.conversation import Answer, Call, Message, Reply, ReplyDelta, ReplyFinish, RetryMark, Role, Text, Usage
from turnstile.errors import EngineError
from turnstile.exchange.inflight import Flight, Repeat, judge, landed

HELLO = Answer((Reply(Message(Role.ASSISTANT, (Text("hello"),)), ReplyFinish.STOP),), Usage(3, 2))


def call(retry_count: int = 0, idempotency_key: str = "") -> Call:
    return Call("openai.chat", "m", (Message(Role.USER, (Text("hi"),)),), retry=RetryMark(idempotency_key, retry_count))


def flight(key: str = "") -> Flight:
    return Flight("digest", key, "c0")


async def drained(flight: Flight) -> str:
    follower = flight.join()
    text = ""
    async for delta in follower.deltas(silence_s=5):
        assert delta is not None
        text += delta.content
    follower.leave()
    return text


async def test_a_follower_that_comes_late_is_told_everything_from_the_start() -> None:
    running = flight()
    running.tell(ReplyDelta(content="hel"))
    async with asyncio.TaskGroup() as clients:
        early = clients.create_task(drained(running))
        await asyncio.sleep(0)
        running.tell(ReplyDelta(content="lo"))
        late = clients.create_task(drained(running))
        await asyncio.sleep(0)
        running.land(HELLO)
    assert (early.result(), late.result(), await drained(running)) == ("hello", "hello", "hello")


async def test_silence_is_told_as_none_so_that_a_keep_alive_can_be_sent() -> None:
    follower = flight().join()
    deltas = follower.deltas(silence_s=0.01)
    assert await anext(deltas) is None
    assert await anext(deltas) is None


async def test_a_follower_that_leaves_waits_no_more_and_the_call_goes_on() -> None:
    running = flight()
    follower = running.join()
    assert running.waiting == 1
    follower.leave()
    assert [delta async for delta in follower.deltas(silence_s=5)] == []
    assert (running.waiting, running.outcome) == (0, None)


async def test_the_first_outcome_counts() -> None:
    running = flight()
    running.land(HELLO)
    running.land(EngineError("late", "x"))
    assert running.outcome == HELLO


async def test_an_answer_from_the_journal_is_told_like_a_live_one() -> None:
    assert await drained(landed("digest", "c0", HELLO)) == "hello"


def test_the_first_of_its_kind_is_sampled() -> None:
    assert judge(call(), None) is Repeat.FRESH


@pytest.mark.parametrize("mark", [{"retry_count": 1}, {"idempotency_key": "k"}])
async def test_case_f2_a_marked_retry_joins_the_running_call(mark: dict[str, object]) -> None:
    running = flight(key="k")
    running.join()
    assert judge(call(**mark), running) is Repeat.COALESCED  # type: ignore[arg-type]


@pytest.mark.parametrize("mark", [{"retry_count": 1}, {"idempotency_key": "k"}])
def test_case_f1_a_marked_retry_of_an_answered_call_gets_that_answer(mark: dict[str, object]) -> None:
    answered = flight(key="k")
    answered.land(HELLO)
    answered.delivered = True
    assert judge(call(**mark), answered) is Repeat.REPLAYED  # type: ignore[arg-type]


def test_an_unmarked_repeat_of_a_delivered_answer_is_a_new_sample() -> None:
    answered = flight()
    answered.land(HELLO)
    answered.delivered = True
    assert judge(call(), answered) is Repeat.FRESH


async def test_an_unmarked_repeat_while_the_first_client_waits_is_a_new_sample() -> None:
    running = flight()
    running.join()
    assert judge(call(), running) is Repeat.FRESH


def test_an_unmarked_repeat_of_an_answer_that_never_arrived_is_a_retry() -> None:
    answered = flight()
    answered.land(HELLO)
    assert judge(call(), answered) is Repeat.REPLAYED


def test_an_unmarked_repeat_of_a_call_that_nobody_waits_for_joins_it() -> None:
    assert judge(call(), flight()) is Repeat.COALESCED


def test_another_key_marks_no_retry_of_this_call() -> None:
    answered = flight(key="k")
    answered.land(HELLO)
    answered.delivered = True
    assert judge(call(idempotency_key="other"), answered) is Repeat.FRESH


def test_a_retry_of_a_failed_call_is_sampled() -> None:
    failed = flight()
    failed.land(EngineError("down", "start it"))
    assert judge(call(retry_count=2), failed) is Repeat.FRESH
