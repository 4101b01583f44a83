"""Who waits for which call, and when a repeat is a retry."""

from __future__ import annotations

import asyncio

from turnstile.conversation import Answer, Message, Reply, ReplyDelta, ReplyFinish, Role, Text, Usage
from turnstile.errors import EngineError
from turnstile.exchange.inflight import Flight, landed

HELLO = Answer((Reply(Message(Role.ASSISTANT, (Text("hello"),)), ReplyFinish.STOP),), Usage(3, 2))


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


async def test_what_refers_to_a_call_waits_until_the_journal_has_its_beginning() -> None:
    running = flight()
    async with asyncio.TaskGroup() as tasks:
        begun = tasks.create_task(running.has_begun())
        await asyncio.sleep(0)
        assert not begun.done()
        running.kept()
    assert begun.result()


async def test_a_call_that_failed_before_it_began_is_told_as_never_begun() -> None:
    running = flight()
    running.land(EngineError("late", "x"))
    assert not await running.has_begun()


def test_who_wants_to_know_is_told_once_when_a_call_has_ended_or_at_once_if_it_has() -> None:
    told: list[str] = []
    flight = Flight("d", "", "c0")
    flight.when_landed(lambda: told.append("waited"))
    assert told == []
    flight.land(EngineError("down", "x"))
    flight.land(EngineError("again", "x"))
    flight.when_landed(lambda: told.append("late"))
    assert told == ["waited", "late"]
    assert flight.times.landed_ns is not None
