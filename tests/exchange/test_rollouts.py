"""Rollouts: opened, closed, attempts, and what a restart finds."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from datetime import datetime

import msgspec
import pytest

from turnstile.conversation import Call, Message, ReplyFinish, RetryMark, Role, Sampling, Text, Usage
from turnstile.errors import CallerError, StoreError
from turnstile.exchange.idle import IdleWatch
from turnstile.exchange.inflight import Flight
from turnstile.exchange.repeats import Repeat
from turnstile.exchange.rollouts import (
    Ending,
    Opening,
    OpenRollout,
    Policies,
    Rollouts,
    closed,
    fresh_rollout_id,
    json_text,
    key_hash,
)
from turnstile.generation import Draw, Finish, Head, LogprobsMode, NodeRef, Retention, Root
from turnstile.journal import (
    AnswerUndelivered,
    CallStarted,
    RolloutStatus,
    SampledChoice,
    SuspectLogprobs,
    TurnCommitted,
)
from turnstile.reasons import DiscardReason, EndReason, FailReason, RootReason
from turnstile.store.deletion import Unexported
from turnstile.store.exports import ExportMark, mark
from turnstile.tokens import IdRun, LogprobRun, SegmentKind, tile

HEAD = Head("fingerprint", "m", "t", 10, "c", "{}", ())
HELLO = Message(Role.ASSISTANT, (Text("hello"),))


def call(text: str = "hi", key: str = "") -> Call:
    return Call("openai.chat", "m", (Message(Role.USER, (Text(text),)),), retry=RetryMark(key, 0))


async def started(rollout: OpenRollout, flight: Flight, key: str = "", parent: NodeRef | None = None) -> None:
    record = CallStarted(
        rollout_id=rollout.opened.rollout_id, call_id=flight.call_id, started_at=rollout.opened.opened_at,
        dialect="openai.chat", head=HEAD.fingerprint, new_head=HEAD, engine="e", engine_version="1", parent=parent,
        held_length=0, added_A=IdRun.of([1, 2]), added_segments=tile([(2, SegmentKind.PROMPT)]), prompt_sha256="",
        history=Root(RootReason.FIRST_CALL), covered_M=0, new_M=call().messages, sampling=Sampling(), draw=Draw(),
        body_digest=flight.digest, idempotency_key=key, heard=rollout.repeats.newly_heard(),
    )  # fmt: skip
    await rollout.keep(record)


async def committed(rollout: OpenRollout, flight: Flight) -> None:
    choice = SampledChoice(
        0, IdRun.of([3, 4]), LogprobRun.of([-0.5, -0.5]), HELLO, ReplyFinish.STOP, Finish.STOP, "eos", Usage(2, 2),
        LogprobsMode.PROCESSED, 1.0,
    )  # fmt: skip
    await rollout.keep(TurnCommitted(rollout.opened.rollout_id, flight.call_id, rollout.opened.opened_at, (choice,)))


async def answered(rollout: OpenRollout, digest: str = "a", key: str = "") -> Flight:
    """A call that was committed; nobody knows yet whether its answer arrived."""
    flight = rollout.take_off(call(key=key), digest)
    await started(rollout, flight, key=key)
    await committed(rollout, flight)
    return flight


async def refused(work: object) -> tuple[str, int]:
    with pytest.raises(CallerError) as problem:
        await work  # type: ignore[misc]
    return problem.value.code, problem.value.status


async def test_what_a_runner_says_of_a_rollout_is_its_first_record(rollouts: Rollouts) -> None:
    opening = Opening("r", "g", "t", 3, "parent", "agent", {"a": msgspec.Raw(b'[1, "\xc3\xa4"]')})
    opened = (await rollouts.create(opening, agent_key="secret")).opened
    assert (opened.rollout_id, opened.attempt, opened.group_id, opened.task_id, opened.sample_index) == (
        "r",
        1,
        "g",
        "t",
        3,
    )
    assert (opened.parent_rollout_id, opened.agent_name, opened.metadata) == ("parent", "agent", '{"a":[1,"ä"]}')
    assert (opened.agent_key_sha256, opened.opened_by) == (key_hash("secret"), "operator")
    assert (await rollouts.get("r")).opened == opened


async def test_a_rollout_keeps_the_retention_policy_that_it_began_with(
    reopen: Callable[..., Rollouts],
) -> None:
    begun = (await reopen(Policies(Retention.TEMPLATE)).create(Opening("r"), agent_key="")).opened.retention
    rollouts = reopen(Policies(Retention.TOOL_CYCLE))
    later = (await rollouts.get("r")).opened.retention
    other = (await rollouts.create(Opening("s"), agent_key="")).opened.retention
    assert (begun, later, other) == (Retention.TEMPLATE, Retention.TEMPLATE, Retention.TOOL_CYCLE)


async def test_case_d3_a_rollout_keeps_the_policy_on_suspect_log_probabilities_that_it_began_with(
    reopen: Callable[..., Rollouts],
) -> None:
    await reopen(Policies(suspect_logprobs=SuspectLogprobs.MASK)).create(Opening("r"), agent_key="")
    rollouts = reopen()
    later = (await rollouts.get("r")).opened.suspect_logprobs
    other = (await rollouts.create(Opening("s"), agent_key="")).opened.suspect_logprobs
    assert (later, other) == (SuspectLogprobs.MASK, SuspectLogprobs.MARK)


async def test_only_its_own_key_opens_a_rollout(rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening("r"), agent_key="secret")
    assert [rollout.admits(key) for key in ("secret", "Secret", "", "secret ")] == [True, False, False, False]


async def test_a_rollout_without_a_key_is_opened_by_none(rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening("r"), agent_key="")
    assert [rollout.admits(key) for key in ("", "x")] == [False, False]


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "a b", "ä", "x" * 129, "a\n"])
async def test_an_id_that_cannot_stand_in_a_path_is_refused(rollouts: Rollouts, name: str) -> None:
    if name:
        assert await refused(rollouts.create(Opening(name), "")) == ("rollout_id_invalid", 400)
    else:
        assert (await rollouts.create(Opening(name), "")).opened.rollout_id.startswith("ro-")


def test_ids_that_nobody_named_differ() -> None:
    assert len({fresh_rollout_id() for _ in range(50)}) == 50


async def test_an_open_rollout_is_not_opened_again_and_a_closed_one_starts_its_next_attempt(rollouts: Rollouts) -> None:
    await rollouts.create(Opening("r"), "")
    assert await refused(rollouts.create(Opening("r"), "")) == ("rollout_open", 409)
    await rollouts.finish("r", Ending(), patience_s=1)
    again = await rollouts.create(Opening("r"), "")
    assert (again.opened.attempt, again.forest.call_count, await rollouts.get("r") is again) == (2, 0, True)


async def test_an_unknown_rollout_is_not_found(rollouts: Rollouts) -> None:
    assert await refused(rollouts.get("nobody")) == ("rollout_not_found", 404)


async def test_many_first_uses_at_once_open_one_rollout(rollouts: Rollouts) -> None:
    found = await asyncio.gather(*(rollouts.get_or_create("r") for _ in range(30)))
    assert {id(each) for each in found} == {id(found[0])}
    assert (found[0].opened.attempt, found[0].opened.opened_by, len(rollouts)) == (1, "first_use", 1)


async def test_closing_says_how_it_ended_and_refuses_a_second_end(rollouts: Rollouts) -> None:
    await rollouts.create(Opening("r"), "")
    ending = Ending(RolloutStatus.TRUNCATED, 0.5, {"style": None}, {"k": msgspec.Raw(b"1")})
    finished = (await rollouts.finish("r", ending, patience_s=1)).forest.finished
    assert finished is not None
    assert (finished.status, finished.reward, finished.rewards, finished.metadata) == (
        RolloutStatus.TRUNCATED, 0.5, {"style": None}, '{"k":1}',
    )  # fmt: skip
    assert await refused(rollouts.finish("r", Ending(), patience_s=1)) == ("rollout_closed", 409)
    assert len(rollouts) == 0


async def test_running_is_no_way_to_end(rollouts: Rollouts) -> None:
    await rollouts.create(Opening("r"), "")
    assert await refused(rollouts.finish("r", Ending(RolloutStatus.RUNNING), patience_s=1)) == ("invalid_request", 400)
    assert (await rollouts.get("r")).closing is False


async def test_closing_waits_for_every_running_call_and_then_gives_it_up(rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening("r"), "")
    ended: list[str] = []

    async def run(flight: Flight, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
            ended.append(f"{flight.call_id} answered")
        except asyncio.CancelledError:
            ended.append(f"{flight.call_id} given up")

    async with asyncio.TaskGroup() as tasks:
        # Equal requests: of two samples on purpose, both are running.
        for seconds in (0.01, 60, 60):
            flight = rollout.take_off(call(), "same digest")
            flight.task = tasks.create_task(run(flight, seconds))
        await rollouts.finish("r", Ending(), patience_s=0.1)
    assert sorted(ended) == ["c0 answered", "c1 given up", "c2 given up"]


async def test_a_call_after_the_end_is_remembered(rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening("r"), "")
    error = await rollouts.reject(rollout, "rollout_closed")
    assert str(error) == str(closed("r"))
    assert [each.reason for each in rollout.forest.rejected] == ["rollout_closed"]


async def test_what_cannot_be_written_as_json_again_is_refused_by_name() -> None:
    for wrong in (b"1e999", b'"\xff"'):
        with pytest.raises(CallerError) as problem:
            json_text({"a": msgspec.Raw(wrong)})
        assert problem.value.param == "metadata"


async def test_calls_are_numbered_on(rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening("r"), "")
    flights = [rollout.take_off(call(), "d") for _ in range(2)]
    assert [flight.call_id for flight in flights] == ["c0", "c1"]
    assert rollout.repeats.running == tuple(flights)


async def test_a_number_is_never_used_twice_whatever_failed_before_it_began(reopen: Callable[[], Rollouts]) -> None:
    rollout = await reopen().create(Opening("r"), "")
    rollout.take_off(call(), "never began")
    begun = rollout.take_off(call(), "a")
    await started(rollout, begun)
    assert begun.call_id == "c1"
    assert (await reopen().get("r")).take_off(call(), "b").call_id == "c2"


async def test_a_record_that_contradicts_the_forest_never_reaches_the_journal(reopen: Callable[[], Rollouts]) -> None:
    rollouts = reopen()
    rollout = await rollouts.create(Opening("r"), "")
    flight = rollout.take_off(call(), "a")
    with pytest.raises(StoreError, match="never started"):
        await rollouts.joined(rollout, flight, "coalesced")
    assert (await reopen().get("r")).forest == rollout.forest


async def test_after_a_restart_an_open_call_is_interrupted_and_numbers_go_on(reopen: Callable[[], Rollouts]) -> None:
    rollout = await reopen().create(Opening("r"), "")
    for digest in ("a", "b"):
        flight = rollout.take_off(call(), digest)
        await started(rollout, flight)
        if digest == "a":
            await committed(rollout, flight)
    again = await reopen().get("r")
    states = list(again.forest.calls.values())
    assert [state.committed is not None for state in states] == [True, False]
    assert states[1].failed is not None
    assert states[1].failed.reason is FailReason.INTERRUPTED
    assert again.take_off(call(), "c").call_id == "c2"
    # Said once: a second restart finds it failed.
    assert (await reopen().get("r")).forest == again.forest


async def test_after_a_restart_an_answer_that_may_not_have_arrived_can_be_had_again(
    reopen: Callable[[], Rollouts],
) -> None:
    rollout = await reopen().create(Opening("r"), "")
    for digest in ("a", "b"):
        flight = await answered(rollout, digest, key=digest)
        if digest == "a":
            rollout.repeats.delivered(flight)
    again = await reopen().get("r")
    assert again.repeats.find(call(), "a").how is Repeat.FRESH
    found = again.repeats.find(call(), "b")
    assert found.how is Repeat.REPLAYED
    assert found.flight is not None
    assert (found.flight.call_id, found.flight.history) == ("c1", Root(RootReason.FIRST_CALL))
    assert found.flight.outcome is not None
    assert found.flight.outcome.replies[0].message == HELLO  # type: ignore[union-attr]
    assert again.repeats.find(call(key="a"), "a").how is Repeat.REPLAYED
    with pytest.raises(CallerError):
        again.repeats.find(call(key="b"), "a")


async def test_an_answer_that_was_handed_out_after_a_restart_has_arrived(reopen: Callable[[], Rollouts]) -> None:
    rollout = await reopen().create(Opening("r"), "")
    await answered(rollout)
    again = await reopen().get("r")
    found = again.repeats.find(call(), "a")
    assert found.flight is not None
    again.repeats.delivered(found.flight)
    assert again.repeats.find(call(), "a").how is Repeat.FRESH


async def test_after_a_restart_an_answer_that_is_known_to_be_lost_can_be_had_again_until_it_was(
    reopen: Callable[[], Rollouts], clock: Callable[[], datetime]
) -> None:
    rollout = await reopen().create(Opening("r"), "")
    for digest in ("a", "b"):
        flight = await answered(rollout, digest)
        await rollout.keep(AnswerUndelivered("r", flight.call_id, clock(), DiscardReason.CLIENT_GONE))
    rollouts = reopen()
    again = await rollouts.get("r")
    lost = again.repeats.find(call(), "a").flight
    assert lost is not None
    await rollouts.joined(again, lost, "replayed")
    again.repeats.delivered(lost)
    await started(again, again.take_off(call(), "c"))
    for each in (again, await reopen().get("r")):
        found = [each.repeats.find(call(), digest).how for digest in ("a", "b")]
        assert found == [Repeat.FRESH, Repeat.REPLAYED]


async def test_an_answer_that_no_repeat_got_whole_can_be_had_again_however_often_the_process_is_killed(
    reopen: Callable[[], Rollouts],
) -> None:
    rollout = await reopen().create(Opening("r"), "")
    await answered(rollout)
    for _ in range(3):
        rollouts = reopen()
        again = await rollouts.get("r")
        found = again.repeats.find(call(), "a")
        assert (found.how, found.flight and found.flight.call_id) == (Repeat.REPLAYED, "c0")
        assert found.flight is not None
        # It is killed before the last byte of the repeat's answer leaves.
        await rollouts.joined(again, found.flight, "replayed")


async def test_after_a_restart_all_answers_that_were_on_their_way_can_be_had_again_not_only_the_last(
    reopen: Callable[[], Rollouts],
) -> None:
    rollout = await reopen().create(Opening("r"), "")
    flights = [rollout.take_off(call(), digest) for digest in ("a", "b", "open")]
    for flight in flights:
        await started(rollout, flight)
    for flight in flights[:2]:
        await committed(rollout, flight)
    # The first start ends the call that ran; it is killed before anybody has asked again.
    await reopen().get("r")
    again = await reopen().get("r")
    assert [again.repeats.find(call(), digest).how for digest in ("a", "b")] == [Repeat.REPLAYED, Repeat.REPLAYED]


async def test_a_call_that_builds_on_an_answer_shows_that_it_arrived(reopen: Callable[[], Rollouts]) -> None:
    rollout = await reopen().create(Opening("r"), "")
    await answered(rollout)
    await started(rollout, rollout.take_off(call(), "b"), parent=NodeRef("c0", 0))
    assert (await reopen().get("r")).repeats.find(call(), "a").how is Repeat.FRESH


async def test_an_unheard_answer_stays_so_while_its_rollout_is_out_of_memory(reopen: Callable[..., Rollouts]) -> None:
    rollout = await reopen().create(Opening("r"), "")
    await answered(rollout)
    rollouts = reopen(_crowded())
    await rollouts.get("r")
    await rollouts.create(Opening("s"), "")
    assert rollouts.residents.times_left > 0
    assert (await rollouts.get("r")).repeats.find(call(), "a").how is Repeat.REPLAYED


async def test_after_a_restart_the_retry_of_an_interrupted_call_is_sampled_also_beside_an_equal_answer(
    reopen: Callable[..., Rollouts],
) -> None:
    rollout = await reopen().create(Opening("r"), "")
    rollout.repeats.delivered(await answered(rollout))
    await started(rollout, rollout.take_off(call(), "a"))
    for _ in range(2):
        again = await reopen().get("r")
    marked = msgspec.structs.replace(call(), retry=RetryMark("", 1))
    assert [again.repeats.find(marked, "a").how for _ in range(2)] == [Repeat.FRESH, Repeat.REPLAYED]


async def test_after_a_restart_the_retry_of_an_interrupted_call_may_be_given_an_equal_answer_that_was_on_its_way(
    reopen: Callable[..., Rollouts],
) -> None:
    rollout = await reopen().create(Opening("r"), "")
    both = [rollout.take_off(call(), "a") for _ in range(2)]
    for flight in both:
        await started(rollout, flight)
    await committed(rollout, both[0])
    rollout.repeats.delivered(both[0])
    again = await reopen().get("r")
    marked = msgspec.structs.replace(call(), retry=RetryMark("", 1))
    found = [again.repeats.find(marked, "a")]
    assert found[0].flight is not None
    found[0].flight.join()
    found.append(again.repeats.find(marked, "a"))
    assert [each.how for each in found] == [Repeat.REPLAYED, Repeat.FRESH]


async def test_an_answer_that_was_left_by_its_client_and_by_a_repeat_is_not_taken_from_the_next_one(
    reopen: Callable[..., Rollouts],
) -> None:
    rollout = await reopen().create(Opening("r"), "")
    flight = await answered(rollout)
    answer = rollout.answered("c0")
    assert answer is not None
    flight.land(answer)
    assert rollout.repeats.lost(flight)
    next_one = rollout.repeats.find(call(), "a").flight
    assert next_one is not None
    next_one.join()
    assert not rollout.repeats.lost(flight)
    assert rollout.repeats.find(call(), "a").how is Repeat.FRESH
    assert rollout.repeats.lost(next_one)


async def test_what_could_not_be_written_of_a_rollout_keeps_it_in_memory(
    reopen: Callable[..., Rollouts], clock: Callable[[], datetime]
) -> None:
    rollouts = reopen(_crowded())
    rollout = await rollouts.create(Opening("r"), "")
    await answered(rollout)
    # As a second cancellation does, that comes while it waits for its turn.
    async with rollout._order, asyncio.TaskGroup() as tasks:
        noting = tasks.create_task(
            rollout.keep_at_last(AnswerUndelivered("r", "c0", clock(), DiscardReason.CLIENT_GONE))
        )
        await asyncio.sleep(0)
        noting.cancel()
        await asyncio.wait([noting])
    del rollout, noting
    await rollouts.create(Opening("s"), "")
    assert (await rollouts.finish("r", Ending(), 0.0)).forest.calls["c0"].undelivered is not None


async def test_what_comes_late_to_a_finished_attempt_weighs_nothing_in_the_next(
    rollouts: Rollouts, clock: Callable[[], datetime]
) -> None:
    first = await rollouts.create(Opening("r"), "")
    await answered(first)
    await rollouts.finish("r", Ending(), 0.0)
    await rollouts.create(Opening("r"), "")
    await first.keep(AnswerUndelivered("r", "c0", clock(), DiscardReason.CLIENT_GONE))
    await rollouts.finish("r", Ending(), 0.0)
    assert (len(rollouts), rollouts.residents.bytes) == (0, 0)


async def test_what_is_left_of_an_attempt_is_filed_under_it_when_the_next_is_open(
    reopen: Callable[[], Rollouts], clock: Callable[[], datetime]
) -> None:
    rollouts = reopen()
    first = await rollouts.create(Opening("r"), "")
    flight = await answered(first)
    await rollouts.finish("r", Ending(), patience_s=0)
    second = await rollouts.create(Opening("r"), "")
    await answered(second)
    await first.keep(AnswerUndelivered("r", flight.call_id, clock(), DiscardReason.CLIENT_GONE))
    assert (await reopen().get("r")).forest.calls["c0"].undelivered is None


async def test_an_end_with_metadata_that_cannot_be_kept_leaves_the_rollout_open(rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening("r"), "")
    with pytest.raises(CallerError):
        await rollouts.finish("r", Ending(metadata={"a": msgspec.Raw(b"1e999")}), patience_s=0)
    assert not rollout.closing
    await rollouts.finish("r", Ending(reward=1.0), patience_s=0)


async def test_after_a_restart_a_closed_rollout_is_closed(reopen: Callable[[], Rollouts]) -> None:
    before = reopen()
    await before.create(Opening("r"), "")
    await before.finish("r", Ending(), patience_s=1)
    again = reopen()
    assert (await again.get("r")).closing is True
    assert len(again) == 0
    assert (await again.create(Opening("r"), "")).opened.attempt == 2


def _crowded() -> Policies:
    """No memory at all for what nobody uses."""
    return Policies(memory_bytes=1, quiet_s=0.0)


async def test_what_nobody_uses_leaves_memory_and_comes_back_as_it_was(reopen: Callable[..., Rollouts]) -> None:
    rollouts = reopen(_crowded())
    rollout = await rollouts.create(Opening("r"), "")
    flight = await answered(rollout)
    rollout.repeats.delivered(flight)
    left, gone = rollout.forest, weakref.ref(rollout)
    del rollout
    await rollouts.create(Opening("other"), "")
    assert gone() is None
    back = await rollouts.get("r")
    assert back.forest == left
    assert rollouts.residents.times_left > 0


async def test_the_same_request_is_still_a_new_sample_when_its_rollout_had_left_memory(
    reopen: Callable[..., Rollouts],
) -> None:
    rollouts = reopen(_crowded())
    rollout = await rollouts.create(Opening("r"), "")
    for digest in ("a", "b"):
        flight = await answered(rollout, digest)
    rollout.repeats.delivered(flight)
    del rollout
    await rollouts.create(Opening("other"), "")
    # What was delivered is known here, as it is not after a restart.
    assert (await rollouts.get("r")).repeats.find(call(), "b").how is Repeat.FRESH


async def test_a_rollout_with_a_call_in_the_air_is_one_object_whatever_memory_it_takes(
    reopen: Callable[..., Rollouts],
) -> None:
    rollouts = reopen(_crowded())
    rollout = await rollouts.create(Opening("r"), "")
    flight = rollout.take_off(call(), "a")
    await started(rollout, flight)
    await rollouts.create(Opening("other"), "")
    assert await rollouts.get("r") is rollout
    assert rollout.forest.calls[flight.call_id].is_open


def touch_nobody(rollouts: Rollouts) -> list[float]:
    """Give a rollout's watch a clock of the test's own."""
    now = [0.0]
    rollouts.idle = IdleWatch(60.0, lambda: now[0])
    return now


async def exported(rollouts: Rollouts, rollout: OpenRollout) -> None:
    left = ExportMark(rollout.opened.rollout_id, rollout.opened.attempt, "trainer", rollout.opened.opened_at)
    await asyncio.to_thread(rollouts._journal.change, lambda at: mark(at, [left]))


async def finished_and_left(rollouts: Rollouts, rollout_id: str, reward: float = 1.0) -> None:
    await rollouts.create(Opening(rollout_id), agent_key="")
    rollout = await rollouts.finish(rollout_id, Ending(reward=reward), 1.0)
    await exported(rollouts, rollout)


async def finished_with_a_call(rollouts: Rollouts, rollout_id: str) -> None:
    rollout = await rollouts.create(Opening(rollout_id), agent_key="secret")
    await answered(rollout)
    await rollouts.finish(rollout_id, Ending(reward=1.0), 1.0)
    await exported(rollouts, rollout)


async def test_a_closed_rollout_that_agents_still_ask_for_is_read_back_once_without_its_calls(
    rollouts: Rollouts,
) -> None:
    await finished_with_a_call(rollouts, "r")
    shut = await rollouts.get("r")
    assert (shut.closing, shut.admits("secret"), shut.admits("other"), dict(shut.forest.calls)) == (
        True,
        True,
        False,
        {},
    )
    assert (await rollouts.reject(shut, "rollout_closed")).code == "rollout_closed"
    assert await rollouts.get("r") is shut
    assert len(shut.forest.rejected) == 1


async def test_what_is_remembered_of_a_closed_rollout_ends_with_its_deletion_and_with_its_next_attempt(
    rollouts: Rollouts,
) -> None:
    for name in ("gone", "again"):
        await finished_with_a_call(rollouts, name)
        await rollouts.get(name)
    await rollouts.delete("gone", None, Unexported.KEEP)
    assert await refused(rollouts.get("gone")) == ("rollout_deleted", 410)
    await rollouts.create(Opening("again"), agent_key="")
    second = await rollouts.get("again")
    assert (second.opened.attempt, second.closing) == (2, False)
    await rollouts.finish("again", Ending(), 1.0)
    assert (await rollouts.get("again")).opened.attempt == 2


async def test_a_rollout_without_a_call_for_too_long_is_closed_and_says_so(rollouts: Rollouts) -> None:
    now = touch_nobody(rollouts)
    await rollouts.create(Opening("r"), agent_key="")
    now[0] = 59.0
    assert await rollouts.close_idle("r") is None
    now[0] = 60.0
    assert await rollouts.close_idle("r")
    ended = (await rollouts.get("r")).forest.finished
    assert ended is not None
    assert (ended.status, ended.reason, ended.metadata, ended.reward) == (
        RolloutStatus.ABORTED,
        EndReason.IDLE_TIMEOUT,
        '{"idle_timeout_s":60.0}',
        None,
    )
    assert len(rollouts) == 0


async def test_a_record_begins_the_time_anew_and_a_running_call_stops_it(rollouts: Rollouts) -> None:
    now = touch_nobody(rollouts)
    rollout = await rollouts.create(Opening("r"), agent_key="")
    now[0] = 50.0
    flight = rollout.take_off(call(), "d")
    await started(rollout, flight)
    now[0] = 100.0
    assert await rollouts.close_idle("r") is None
    now[0] = 500.0
    assert await rollouts.close_idle("r") is None


async def test_a_restart_gives_every_rollout_the_whole_time_again(reopen: Callable[..., Rollouts]) -> None:
    await reopen().create(Opening("r"), agent_key="")
    rollouts = reopen()
    now = touch_nobody(rollouts)
    now[0] = 59.0
    assert await rollouts.close_idle("r") is None
    now[0] = 61.0
    assert await rollouts.close_idle("r")


async def test_of_a_finish_and_an_idle_close_one_wins_and_the_runner_is_told(rollouts: Rollouts) -> None:
    now = touch_nobody(rollouts)
    for number in range(20):
        await rollouts.create(Opening(f"r{number}"), agent_key="")
    now[0] = 60.0
    for number in range(20):
        name = f"r{number}"
        both = [rollouts.finish(name, Ending(reward=1.0), 1.0), rollouts.close_idle(name)]
        first, second = await asyncio.gather(*(both if number % 2 else both[::-1]), return_exceptions=True)
        idle, finish = (second, first) if number % 2 else (first, second)
        ended = (await rollouts.get(name)).forest.finished
        assert ended is not None
        if ended.reason is EndReason.RUNNER:
            assert (idle, ended.reward, isinstance(finish, OpenRollout)) == (None, 1.0, True)
        else:
            assert isinstance(idle, OpenRollout)
            assert isinstance(finish, CallerError)
            assert finish.code == "rollout_closed"


async def test_a_deleted_rollout_is_gone_by_name_and_never_begins_by_itself_again(rollouts: Rollouts) -> None:
    await finished_and_left(rollouts, "r")
    (stone,) = await rollouts.delete("r", None, Unexported.KEEP)
    assert (stone.attempt, stone.exported_to, stone.calls) == (1, "trainer", 0)
    assert await refused(rollouts.get("r")) == ("rollout_deleted", 410)
    assert await refused(rollouts.get_or_create("r")) == ("rollout_deleted", 410)
    assert await refused(rollouts.delete("r", None, Unexported.KEEP)) == ("rollout_deleted", 410)
    assert (await rollouts.create(Opening("r"), agent_key="")).opened.attempt == 2


async def test_an_earlier_attempt_is_not_given_in_the_place_of_one_that_was_deleted(rollouts: Rollouts) -> None:
    for _ in range(2):
        await finished_and_left(rollouts, "r")
    await rollouts.delete("r", 2, Unexported.KEEP)
    assert await refused(rollouts.get("r")) == ("rollout_deleted", 410)
    assert (await rollouts.create(Opening("r"), agent_key="")).opened.attempt == 3


async def test_a_rollout_stays_while_it_is_open_or_nobody_has_it(rollouts: Rollouts) -> None:
    assert await refused(rollouts.delete("r", None, Unexported.DELETE)) == ("rollout_not_found", 404)
    await rollouts.create(Opening("r"), agent_key="")
    assert await refused(rollouts.delete("r", None, Unexported.DELETE)) == ("rollout_open", 409)
    await rollouts.finish("r", Ending(), 1.0)
    assert await refused(rollouts.delete("r", None, Unexported.KEEP)) == ("rollout_unexported", 409)
    assert len(await rollouts.delete("r", None, Unexported.DELETE)) == 1


async def test_what_comes_late_to_a_deleted_attempt_is_refused_by_the_journal(rollouts: Rollouts) -> None:
    await finished_and_left(rollouts, "r")
    late = await rollouts.get("r")
    await rollouts.delete("r", None, Unexported.KEEP)
    with pytest.raises(StoreError) as problem:
        await rollouts.reject(late, "rollout_closed")
    assert problem.value.code == "rollout_deleted"


async def test_calls_after_the_end_are_recorded_until_there_are_enough_to_see_why(rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening("r"), "")
    for _ in range(205):
        error = await rollouts.reject(rollout, "rollout_closed")
    assert (str(error), len(rollout.forest.rejected)) == (str(closed("r")), 200)
