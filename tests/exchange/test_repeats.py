"""Which call a request repeats, if it repeats one."""

from __future__ import annotations

import asyncio

import pytest

from turnstile.conversation import Answer, Call, Message, Reply, ReplyFinish, RetryMark, Role, Text, Usage
from turnstile.errors import CallerError, EngineError
from turnstile.exchange.inflight import Flight
from turnstile.exchange.repeats import Found, Repeat, Repeats
from turnstile.history.forest import Forest

HELLO = Answer((Reply(Message(Role.ASSISTANT, (Text("hello"),)), ReplyFinish.STOP),), Usage(3, 2))
FRESH = Found(Repeat.FRESH)


def call(retry_count: int = 0, idempotency_key: str = "") -> Call:
    return Call("openai.chat", "m", (Message(Role.USER, (Text("hi"),)),), retry=RetryMark(idempotency_key, retry_count))


@pytest.fixture
def repeats() -> Repeats:
    return Repeats(Forest())


def begun(repeats: Repeats, call_id: str, key: str = "", digest: str = "d") -> Flight:
    flight = Flight(digest, key, call_id)
    repeats.took_off(flight)
    return flight


MARKS = [{"retry_count": 1}, {"idempotency_key": "k"}]


def test_the_first_of_its_kind_is_sampled(repeats: Repeats) -> None:
    begun(repeats, "c0", digest="another")
    assert repeats.find(call(retry_count=1), "d") == FRESH


@pytest.mark.parametrize("mark", MARKS)
def test_case_f2_a_marked_retry_joins_the_running_call_also_while_the_first_client_waits(
    repeats: Repeats, mark: dict[str, object]
) -> None:
    running = begun(repeats, "c0", "k")
    running.join()
    assert repeats.find(call(**mark), "d") == Found(Repeat.COALESCED, running)  # type: ignore[arg-type]


@pytest.mark.parametrize("mark", [{}, *MARKS])
def test_case_f1_a_repeat_of_an_answer_that_never_arrived_is_given_it(
    repeats: Repeats, mark: dict[str, object]
) -> None:
    answered = begun(repeats, "c0", "k")
    answered.land(HELLO)
    assert repeats.find(call(**mark), "d") == Found(Repeat.REPLAYED, answered)  # type: ignore[arg-type]


def test_what_the_next_record_has_to_say_is_which_answers_have_arrived(repeats: Repeats) -> None:
    first, second, third = (begun(repeats, f"c{at}", digest=str(at)) for at in range(3))
    for flight in (first, second, third):
        flight.land(HELLO)
    repeats.delivered(second)
    repeats.delivered(first)
    repeats.lost(third)
    assert repeats.newly_heard() == ("c0", "c1")


def test_an_unmarked_repeat_while_the_first_client_waits_is_a_new_sample(repeats: Repeats) -> None:
    begun(repeats, "c0").join()
    assert repeats.find(call(), "d") == FRESH


def test_an_unmarked_repeat_of_a_call_that_nobody_waits_for_joins_it(repeats: Repeats) -> None:
    running = begun(repeats, "c0")
    assert repeats.find(call(), "d") == Found(Repeat.COALESCED, running)


def test_a_fresh_key_marks_a_new_request(repeats: Repeats) -> None:
    begun(repeats, "c0", "k")
    assert repeats.find(call(idempotency_key="other"), "d") == FRESH


def test_each_key_names_its_own_call_among_equal_ones(repeats: Repeats) -> None:
    first, second = begun(repeats, "c0", "k1"), begun(repeats, "c1", "k2")
    first.land(HELLO)
    second.land(HELLO)
    assert repeats.find(call(1, "k1"), "d") == Found(Repeat.REPLAYED, first)
    assert repeats.find(call(1, "k2"), "d") == Found(Repeat.REPLAYED, second)


def test_case_f2_a_key_with_another_meaning_is_refused(repeats: Repeats) -> None:
    begun(repeats, "c0", "k", digest="another")
    with pytest.raises(CallerError) as refused:
        repeats.find(call(idempotency_key="k"), "d")
    assert (refused.value.status, refused.value.code) == (409, "idempotency_conflict")


def test_a_retry_of_the_one_of_two_equal_calls_that_failed_does_not_take_the_others_answer(repeats: Repeats) -> None:
    failing, other = begun(repeats, "c0"), begun(repeats, "c1")
    other.join()
    failing.land(EngineError("down", "start it"))
    repeats.failed(failing)
    assert repeats.find(call(retry_count=1), "d") == FRESH
    assert repeats.find(call(retry_count=1), "d") == Found(Repeat.COALESCED, other)


def fail(repeats: Repeats, flight: Flight) -> None:
    flight.land(EngineError("down", "start it"))
    repeats.failed(flight)


def test_a_plain_repeat_behind_a_failure_is_its_retry_and_a_later_marked_one_is_of_the_answer(repeats: Repeats) -> None:
    fail(repeats, begun(repeats, "c0"))
    assert repeats.find(call(), "d") == FRESH
    again = begun(repeats, "c1")
    assert repeats.find(call(retry_count=1), "d") == Found(Repeat.COALESCED, again)


def test_a_new_sample_beside_equal_calls_takes_nothing_from_the_retry_of_the_one_that_failed(repeats: Repeats) -> None:
    failing, other = begun(repeats, "c0"), begun(repeats, "c1")
    other.join()
    fail(repeats, failing)
    assert repeats.find(call(), "d") == FRESH
    begun(repeats, "c2").join()
    assert repeats.find(call(retry_count=1), "d") == FRESH


async def test_a_failure_awaits_no_retry_that_came_while_the_call_was_being_given_up(repeats: Repeats) -> None:
    running = begun(repeats, "c0")
    async with asyncio.TaskGroup() as tasks:
        running.task = tasks.create_task(asyncio.sleep(60))
        running.task.cancel()
        assert repeats.find(call(), "d") == FRESH
    again = begun(repeats, "c1")
    again.join()
    fail(repeats, running)
    assert repeats.find(call(retry_count=1), "d") == Found(Repeat.COALESCED, again)


def test_an_answer_that_nobody_took_is_noted_once(repeats: Repeats) -> None:
    answered = begun(repeats, "c0")
    answered.land(HELLO)
    assert [repeats.lost(answered), repeats.lost(answered)] == [True, False]


def test_a_failed_call_with_a_key_awaits_that_key_alone(repeats: Repeats) -> None:
    fail(repeats, begun(repeats, "c0", "k"))
    other = begun(repeats, "c1")
    other.join()
    assert repeats.find(call(retry_count=1), "d") == Found(Repeat.COALESCED, other)


def test_a_marked_retry_with_a_key_that_was_never_seen_is_a_new_request(repeats: Repeats) -> None:
    begun(repeats, "c0", "k").join()
    assert repeats.find(call(1, "other"), "d") == FRESH


def test_nothing_of_calls_that_never_began_stays(repeats: Repeats) -> None:
    for at in range(3000):
        fail(repeats, begun(repeats, f"c{at}", f"k{at}" if at % 2 else "", f"d{at}"))
    assert repeats.find(call(idempotency_key="k1"), "another") == FRESH
    assert sum(len(kept) for kept in (repeats._of_digest, repeats._of_key, repeats._failures)) <= 1001


def test_of_equal_calls_a_bare_retry_is_of_the_one_whose_client_has_gone(repeats: Repeats) -> None:
    gone, waiting = begun(repeats, "c0"), begun(repeats, "c1")
    waiting.join()
    assert repeats.find(call(retry_count=1), "d") == Found(Repeat.COALESCED, gone)


def test_a_failed_call_is_not_joined_by_its_key(repeats: Repeats) -> None:
    failing = begun(repeats, "c0", "k")
    failing.land(EngineError("down", "start it"))
    repeats.failed(failing)
    assert repeats.find(call(1, "k"), "d") == FRESH


def test_what_is_running_is_told_until_it_lands(repeats: Repeats) -> None:
    one, other = begun(repeats, "c0"), begun(repeats, "c1")
    one.land(HELLO)
    assert repeats.running == (other,)


async def test_a_call_that_is_being_given_up_is_joined_by_nobody(repeats: Repeats) -> None:
    running = begun(repeats, "c0")
    async with asyncio.TaskGroup() as tasks:
        running.task = tasks.create_task(asyncio.sleep(60))
        before = repeats.find(call(retry_count=1), "d")
        running.task.cancel()
        after = repeats.find(call(retry_count=1), "d")
    assert (before, after) == (Found(Repeat.COALESCED, running), FRESH)
