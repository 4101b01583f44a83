"""A rollout in memory says what it takes and whether a call of it runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from turnstile.conversation import Call, Message, Role, Text
from turnstile.exchange.failures import Progress
from turnstile.exchange.open_rollout import OpenRollout, key_hash
from turnstile.exchange.rollouts import Opening, Rollouts
from turnstile.exchange.run import run
from turnstile.exchange.world import World
from turnstile.journal import AnswerUndelivered, CallRejected, encode
from turnstile.reasons import DiscardReason
from turnstile.store import Reader

CALL = Call("openai.chat", "m", (Message(Role.USER, (Text("go"),)),))


async def test_its_weight_follows_its_records(rollouts: Rollouts, clock) -> None:
    rollout = await rollouts.create(Opening(rollout_id="r"), "")
    told: list[int] = []
    began = rollout.weight
    rollout.grew = told.append
    record = CallRejected("r", clock(), "rollout_closed")
    await rollout.keep(record)
    grown = 3 * len(encode(record))
    assert (rollout.weight - began, told, began > 0) == (grown, [grown], True)


async def test_it_weighs_the_same_when_it_comes_back_from_the_journal(reopen, clock) -> None:
    rollout = await reopen().create(Opening(rollout_id="r"), "")
    await rollout.keep(CallRejected("r", clock(), "rollout_closed"))
    again: OpenRollout = await reopen().get("r")
    assert again.weight == rollout.weight


async def test_it_admits_its_own_key_and_no_other(rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening(rollout_id="r"), "ts_r_secret")
    assert (rollout.admits("ts_r_secret"), rollout.admits("ts_r_other")) == (True, False)
    assert rollout.opened.agent_key_sha256 == key_hash("ts_r_secret") != "ts_r_secret"


async def test_of_endless_refusals_the_first_ones_are_recorded_and_then_ever_fewer(rollouts: Rollouts) -> None:
    rollout = await rollouts.create(Opening(rollout_id="r"), "")
    recorded = [number for number in range(1, 2001) if rollout.counts_refusal()]
    assert recorded == [*range(1, 201), 256, 512, 1024]


async def test_the_end_of_a_call_that_cannot_be_written_goes_before_the_next_record(
    world: World, fake: Any, rollouts: Rollouts, clock: Callable[[], datetime], tmp_path: Path
) -> None:
    fake.script(fake.ids("A<|im_end|>"))
    rollout = await rollouts.create(Opening(rollout_id="r"), "")
    flight = rollout.take_off(CALL, "digest")
    await run(world, rollout, CALL, flight, Progress("r", "openai.chat"))
    left = AnswerUndelivered("r", flight.call_id, clock(), DiscardReason.CLIENT_GONE)
    rejected = CallRejected("r", clock(), "rollout_closed")
    with closing(sqlite3.connect(tmp_path / "journal.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        await rollout.keep_at_last(left)
        assert not rollout.forest.calls[flight.call_id].never_arrived
        other.execute("ROLLBACK")
    await rollout.keep(rejected)
    with Reader.open(tmp_path) as reader:
        assert list(reader.records("r"))[-2:] == [left, rejected]
    assert rollout.forest.calls[flight.call_id].never_arrived
