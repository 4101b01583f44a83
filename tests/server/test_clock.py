"""The clock that nobody can set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from turnstile.server.clock import steady_clock

START = datetime(2026, 3, 29, 1, tzinfo=UTC)


def test_it_shows_what_has_passed_whatever_the_machines_time_is_set_to() -> None:
    wall = iter([START])
    passed = iter([5_000_000_000, 5_000_000_000, 6_500_000_000, 6_500_000_000])
    now = steady_clock(lambda: next(wall), lambda: next(passed))
    assert [now() - START for _ in range(3)] == [timedelta(), timedelta(seconds=1.5), timedelta(seconds=1.5)]


def test_it_begins_with_the_machines_time_and_never_runs_back() -> None:
    before = datetime.now(UTC)
    now = steady_clock()
    looks = [now() for _ in range(1000)]
    assert looks == sorted(looks)
    assert timedelta() <= looks[0] - before < timedelta(minutes=1)
