"""Calls that wait while weights are updated."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from turnstile.errors import EngineError
from turnstile.exchange.holding import Gate, HoldExpiry, never_held


def now() -> datetime:
    return datetime.now(UTC)


def in_s(seconds: float) -> datetime:
    return now() + timedelta(seconds=seconds)


class Passenger:
    """Passes a gate and says how it went."""

    def __init__(self, gate: Gate, engine: str = "a") -> None:
        self.gate = gate
        self.engine = engine
        self.held_s: float | None = None

    async def go(self) -> None:
        async with self.gate.passage(self.engine) as held_s:
            self.held_s = held_s


async def test_an_open_gate_holds_nobody_and_counts_who_has_passed() -> None:
    gate = Gate(now)
    async with gate.passage("a") as held_s, gate.passage("a"):
        assert (held_s, gate.running("a"), gate.running("b"), gate.waiting("a")) == (0.0, 2, 0, 0)
    assert gate.running("a") == 0


async def test_held_calls_go_on_when_they_are_released_and_others_never_wait() -> None:
    gate = Gate(now)
    gate.hold(("a",), in_s(60))
    held, other = Passenger(gate), Passenger(gate, "b")
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(held.go())
        await other.go()
        await asyncio.sleep(0.05)
        assert (waiting.done(), gate.waiting("a"), gate.running("a")) == (False, 1, 0)
        gate.release(("a",))
    assert (other.held_s, gate.waiting("a")) == (0.0, 0)
    assert held.held_s is not None
    assert 0.04 < held.held_s < 5


async def test_at_the_deadline_held_calls_and_later_ones_are_refused_until_somebody_releases_them() -> None:
    gate = Gate(now)
    gate.hold(("a",), in_s(0.05))
    for _ in range(2):
        with pytest.raises(EngineError) as refused:
            await Passenger(gate).go()
        assert (refused.value.code, refused.value.status) == ("policy_hold_expired", 503)
    assert set(gate.holds) == {"a"}
    gate.release(("a",))
    later = Passenger(gate)
    await later.go()
    assert (later.held_s, gate.running("a"), gate.waiting("a")) == (0.0, 0, 0)


async def test_at_the_deadline_held_calls_go_on_where_that_is_chosen() -> None:
    gate = Gate(now, HoldExpiry.CONTINUE)
    gate.hold(("a",), in_s(0.05))
    held = Passenger(gate)
    await held.go()
    assert held.held_s is not None
    assert held.held_s >= 0.05
    assert dict(gate.holds) == {}


async def test_a_second_hold_moves_the_deadline_of_those_who_wait_already() -> None:
    gate = Gate(now, HoldExpiry.CONTINUE)
    gate.hold(("a",), in_s(60))
    held = Passenger(gate)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(held.go())
        await asyncio.sleep(0.01)
        gate.hold(("a",), in_s(0.05))
    assert held.held_s is not None
    assert held.held_s < 5


async def test_who_leaves_while_waiting_is_counted_no_more() -> None:
    gate = Gate(now)
    gate.hold(("a",), in_s(60))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(Passenger(gate).go(), 0.02)
    assert (gate.waiting("a"), gate.running("a")) == (0, 0)


async def test_where_nobody_holds_nobody_waits() -> None:
    alone = Passenger(never_held(), "")
    await alone.go()
    assert alone.held_s == 0.0
