"""Rollouts leave memory when they are many, and never while somebody holds them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from turnstile.exchange.residents import QUIET_S, Residents


@dataclass(eq=False)
class Some:
    """A rollout of a size."""

    weight: int = 100
    is_busy: bool = False
    unwritten: set[str] = field(default_factory=set[str])


class Clock:
    """Seconds, as a test says."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def residents(clock: Clock) -> Residents[Some]:
    return Residents(250, clock)


def names(residents: Residents[Some], *asked: str) -> list[str]:
    return [name for name in asked if residents.get(name) is not None]


def test_the_longest_unused_leaves_first(residents: Residents[Some], clock: Clock) -> None:
    for name in ("a", "b"):
        residents.put(name, Some())
    clock.now = 1.0
    assert residents.get("a") is not None
    clock.now = QUIET_S + 10
    residents.put("c", Some())
    assert (len(residents), residents.bytes, residents.times_left) == (2, 200, 1)
    assert names(residents, "a", "b", "c") == ["a", "c"]


def test_one_that_was_used_in_the_last_minute_stays_whatever_it_takes(residents: Residents[Some], clock: Clock) -> None:
    for name in ("a", "b", "c", "d"):
        clock.now += 1
        residents.put(name, Some())
    assert (len(residents), residents.bytes) == (4, 400)


def test_one_with_a_running_call_stays(residents: Residents[Some], clock: Clock) -> None:
    residents.put("busy", Some(is_busy=True))
    residents.put("idle", Some())
    clock.now = QUIET_S + 10
    residents.put("new", Some())
    assert names(residents, "busy", "idle", "new") == ["busy", "new"]


def test_one_that_somebody_still_holds_is_found_again_and_never_made_twice(
    residents: Residents[Some], clock: Clock
) -> None:
    held = Some()
    residents.put("held", held)
    clock.now = QUIET_S + 10
    residents.put("big", Some(weight=250))
    assert (len(residents), residents.times_left) == (1, 1)
    assert residents.get("held") is held
    assert residents.bytes == 350


def test_what_only_memory_knows_of_one_stays_when_it_leaves_until_it_is_over(
    residents: Residents[Some], clock: Clock
) -> None:
    residents.put("a", Some(unwritten={"c0"}))
    clock.now = QUIET_S + 10
    residents.put("big", Some(weight=250))
    assert (residents.get("a"), residents.unwritten("a"), residents.unwritten("big")) == (None, {"c0"}, set())
    residents.drop("a")
    assert residents.unwritten("a") == set()


def test_one_that_grows_while_somebody_holds_it_is_back(residents: Residents[Some], clock: Clock) -> None:
    held = Some()
    residents.put("held", held)
    clock.now = QUIET_S + 10
    residents.put("big", Some(weight=250))
    residents.grew("held", 0)
    assert (len(residents), residents.bytes) == (2, 350)


def test_growth_makes_others_leave(residents: Residents[Some], clock: Clock) -> None:
    growing = Some()
    residents.put("old", Some())
    clock.now = QUIET_S + 10
    residents.put("growing", growing)
    growing.weight += 100
    residents.grew("growing", 100)
    assert (names(residents, "old", "growing"), residents.bytes) == (["growing"], 200)


def test_one_that_is_over_is_forgotten_with_its_weight(residents: Residents[Some]) -> None:
    residents.put("a", Some())
    residents.drop("a")
    residents.grew("a", 10)
    residents.drop("never there")
    assert (len(residents), residents.bytes, residents.get("a"), residents.times_left) == (0, 0, None, 0)
