"""What went wrong lately, and how late the event loop was."""

from __future__ import annotations

import asyncio
import time

import pytest

from turnstile.server.lately import Lately, LoopLag


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_only_the_last_minute_counts(clock: Clock) -> None:
    lately = Lately(clock)
    counts = [lately.count]
    for at in (100, 130, 160, 161, 191, 300):
        clock.now = at
        counts.append(lately.count)
        if at < 160:
            lately.note()
    assert counts == [0, 0, 1, 2, 1, 0, 0]


def test_of_very_many_the_last_ones_count(clock: Clock) -> None:
    lately = Lately(clock)
    for _ in range(10_500):
        lately.note()
    assert lately.count == 10_000


def test_the_worst_delay_of_the_last_minute_is_known(clock: Clock) -> None:
    seen: list[float] = []
    lag = LoopLag(seen.append, clock)
    worst = [lag.worst_s]
    for at, late_s in ((0, 0.5), (10, 0.125), (20, 0.25), (61, 0.0), (81, 0.0), (200, 0.0)):
        clock.now = 100.0 + at
        lag.measured(late_s)
        worst.append(lag.worst_s)
    assert worst == [0.0, 0.5, 0.5, 0.5, 0.25, 0.0, 0.0]
    assert seen == [0.5, 0.125, 0.25, 0.0, 0.0, 0.0]


async def test_a_loop_that_is_blocked_is_seen_to_be_late() -> None:
    measured = asyncio.Event()
    lag = LoopLag(lambda _: measured.set())
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        watching = group.create_task(lag.watch(every_s=0.001))
        await measured.wait()
        time.sleep(0.2)  # noqa: ASYNC251 - to block the loop is the point
        for _ in range(2):
            measured.clear()
            await measured.wait()
        watching.cancel()
    assert lag.worst_s > 0.1
