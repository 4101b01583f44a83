"""Time without a record."""

from __future__ import annotations

from turnstile.exchange.idle import IdleWatch


def test_a_rollout_is_idle_when_its_last_record_is_too_long_ago_or_the_start_if_it_had_none():
    now = [100.0]
    watch = IdleWatch(60.0, lambda: now[0])
    now[0] = 130.0
    watch.touched("a")
    now[0] = 160.0
    assert [watch.is_idle(name) for name in "ab"] == [False, True]
    now[0] = 190.0
    assert watch.is_idle("a")


def test_without_a_limit_nothing_is_idle():
    now = [0.0]
    watch = IdleWatch(0.0, lambda: now[0])
    now[0] = 1e9
    assert not watch.is_idle("a")


def test_a_rollout_that_is_closed_is_not_remembered():
    now = [0.0]
    watch = IdleWatch(60.0, lambda: now[0])
    now[0] = 50.0
    watch.touched("a")
    watch.forget("a")
    now[0] = 61.0
    assert watch.is_idle("a")
