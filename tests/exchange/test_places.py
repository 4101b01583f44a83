"""How many calls run at once, and in which order those that wait come in."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.errors import TurnstileError
from turnstile.exchange.places import Places, Room

FOREVER_S = 60.0


class Crowd:
    """Calls that hold their places until they are told to end."""

    def __init__(self, room: Room) -> None:
        self.places = Places(room)
        self.order: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, *names: str) -> None:
        """Calls named `rollout.number`."""
        for name in names:
            self.ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.get_running_loop().create_task(self._call(name))
            await settled()

    async def _call(self, name: str) -> None:
        async with self.places.place(name.split(".")[0]):
            self.order.append(name)
            await self.ends[name].wait()

    async def end(self, *names: str) -> None:
        for name in names:
            self.ends[name].set()
            await self.tasks[name]
            await settled()

    async def hang_up(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks[name], return_exceptions=True)
        await settled()

    @property
    def counts(self) -> tuple[int, int]:
        return self.places.running, self.places.waiting


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_run_at_once_up_to_the_total() -> None:
    crowd = Crowd(Room(total=2, each=2, deadline_s=FOREVER_S))
    await crowd.come("a.1", "b.1", "c.1")
    assert (crowd.order, crowd.counts) == (["a.1", "b.1"], (2, 1))
    await crowd.end("a.1")
    assert (crowd.order, crowd.counts) == (["a.1", "b.1", "c.1"], (2, 0))
    await crowd.end("b.1", "c.1")
    assert crowd.counts == (0, 0)


async def test_a_rollout_at_its_own_limit_keeps_nobody_else_waiting() -> None:
    crowd = Crowd(Room(total=3, each=1, deadline_s=FOREVER_S))
    await crowd.come("a.1", "a.2", "b.1")
    assert (crowd.order, crowd.counts) == (["a.1", "b.1"], (2, 1))
    await crowd.end("b.1")
    assert crowd.counts == (1, 1)
    await crowd.end("a.1")
    assert crowd.order == ["a.1", "b.1", "a.2"]
    await crowd.end("a.2")


async def test_calls_of_a_rollout_are_served_in_order_and_rollouts_take_turns() -> None:
    crowd = Crowd(Room(total=1, each=1, deadline_s=FOREVER_S))
    await crowd.come("x.1", "a.1", "a.2", "a.3", "b.1", "b.2", "c.1")
    for at in range(7):
        await crowd.end(crowd.order[at])
    assert crowd.order == ["x.1", "a.1", "b.1", "c.1", "a.2", "b.2", "a.3"]
    assert crowd.counts == (0, 0)


async def test_who_leaves_the_queue_frees_the_place_in_it() -> None:
    crowd = Crowd(Room(total=1, each=1, waiting=1, deadline_s=FOREVER_S))
    await crowd.come("a.1", "b.1")
    await crowd.hang_up("b.1")
    assert crowd.counts == (1, 0)
    await crowd.come("c.1")
    await crowd.end("a.1", "c.1")
    assert (crowd.order, crowd.counts) == (["a.1", "c.1"], (0, 0))


@pytest.mark.parametrize("hangs_up_first", [False, True])
async def test_a_place_given_in_the_moment_of_leaving_goes_to_the_next(hangs_up_first: bool) -> None:
    crowd = Crowd(Room(total=1, each=1, deadline_s=FOREVER_S))
    async with contextlib.AsyncExitStack() as holder:
        await holder.enter_async_context(crowd.places.place("a"))
        await crowd.come("b.1", "c.1")
        if hangs_up_first:
            crowd.tasks["b.1"].cancel()
        # Leaving it gives the loop no turn: nobody who waits has run in between.
        await holder.aclose()
        crowd.tasks["b.1"].cancel()
    await settled()
    assert (crowd.order, crowd.counts) == (["c.1"], (1, 0))
    await crowd.end("c.1")
    assert crowd.counts == (0, 0)


async def test_a_call_that_finds_the_queue_full_is_refused_at_once() -> None:
    crowd = Crowd(Room(total=1, each=1, waiting=1, deadline_s=FOREVER_S))
    await crowd.come("a.1", "b.1", "c.1")
    with pytest.raises(TurnstileError) as refused:
        await crowd.tasks["c.1"]
    assert (refused.value.code, refused.value.status) == ("overloaded", 503)
    assert str(refused.value) == (
        "1 calls run and 1 wait, which is as many as may. "
        "Send it again later; --max-calls, --max-calls-per-rollout, --max-waiting and --queue-s say how many may."
    )
    await crowd.end("a.1", "b.1")


async def test_a_call_whose_deadline_passes_is_refused_and_its_place_in_the_queue_is_free() -> None:
    crowd = Crowd(Room(total=1, each=1, waiting=1, deadline_s=0.05))
    await crowd.come("a.1", "b.1")
    with pytest.raises(TurnstileError, match=r"No place came free within 0\.05 s"):
        await crowd.tasks["b.1"]
    assert crowd.counts == (1, 0)
    await crowd.end("a.1")


async def test_a_call_that_fails_gives_its_place_back() -> None:
    places = Places(Room(total=1, each=1))
    with pytest.raises(ZeroDivisionError):
        async with places.place("a"):
            raise ZeroDivisionError
    assert (places.running, places.waiting) == (0, 0)


STEPS = st.lists(st.tuples(st.sampled_from(["come", "end", "hang_up"]), st.integers(0, 3), st.integers(0, 99)))


@given(steps=STEPS, total=st.integers(1, 4), each=st.integers(1, 3))
def test_limits_always_hold_nobody_waits_beside_a_free_place_and_all_places_come_back(
    steps: Any, total: int, each: int
) -> None:
    async def live() -> None:
        crowd = Crowd(Room(total=total, each=each, deadline_s=FOREVER_S))
        here: list[str] = []
        for number, (step, rollout, at) in enumerate(steps):
            if step == "come":
                here.append(f"{rollout}.{number}")
                await crowd.come(here[-1])
            elif here:
                name = here.pop(at % len(here))
                running = name in crowd.order
                await (crowd.end(name) if step == "end" and running else crowd.hang_up(name))
            inside = [name for name in here if name in crowd.order]
            outside = [name for name in here if name not in crowd.order]
            of_rollout = {str(each): [name for name in inside if name[0] == str(each)] for each in range(4)}
            assert crowd.counts == (len(inside), len(outside))
            assert len(inside) <= total
            assert all(len(names) <= each for names in of_rollout.values())
            assert len(inside) == total or all(len(of_rollout[name[0]]) == each for name in outside)
        for name in here:
            await crowd.hang_up(name)
        assert crowd.counts == (0, 0)

    asyncio.run(live())


async def test_a_call_whose_turn_comes_when_none_may_begin_is_refused_and_its_place_goes_on() -> None:
    refusals: list[TurnstileError] = []

    def check() -> None:
        if refusals:
            raise refusals[0]

    places = Places(Room(total=1), check)
    async with contextlib.AsyncExitStack() as first:
        await first.enter_async_context(places.place("a"))

        async def wait() -> None:
            async with places.place("b"):
                pass

        waiting = asyncio.get_running_loop().create_task(wait())
        await settled()
        refusals.append(TurnstileError("The disk is full", "Wait", code="disk_low", status=503))
    with pytest.raises(TurnstileError) as refused:
        await waiting
    assert refused.value.code == "disk_low"
    assert (places.running, places.waiting) == (0, 0)
    refusals.clear()
    await wait()
