"""Where the time of a call went."""

from __future__ import annotations

import pytest

from turnstile.exchange.timeline import Span, Stage, Timeline


def timeline(*spans: tuple[Stage, int, int], began: int = 0, landed: int = 100) -> Timeline:
    times = Timeline()
    times.began_ns, times.landed_ns = began, landed
    times.spans += [Span(*each) for each in spans]
    return times


def test_stages_that_overlap_count_each_moment_once() -> None:
    times = timeline((Stage.ENGINE, 10, 50), (Stage.ENGINE, 20, 30), (Stage.ENGINE, 40, 60), (Stage.STORE, 0, 9))
    assert (times.spent_ns(Stage.ENGINE), times.spent_ns(Stage.STORE, Stage.ENGINE)) == (50, 59)


def test_what_was_added_is_all_but_the_waits_and_what_was_handled_meanwhile() -> None:
    times = timeline((Stage.QUEUE, 0, 20), (Stage.HOLD, 20, 25), (Stage.PLAN, 25, 30), (Stage.ENGINE, 35, 90))
    times.handling_ns = 7
    assert times.added_ns == 100 - 20 - 5 - 55 + 7


def test_the_first_token_is_timed_from_the_first_request_to_an_engine() -> None:
    times = timeline((Stage.ENGINE, 40, 90), (Stage.ENGINE, 30, 90))
    assert times.first_token_after_ns is None
    times.first_token_ns = 75
    assert times.first_token_after_ns == 45


def test_only_the_first_id_is_the_first_token() -> None:
    times = Timeline()
    times.handled(times.began_ns)
    times.handled(times.began_ns + 5)
    assert times.first_token_ns == times.began_ns
    assert times.handling_ns > 0


def test_the_first_end_of_a_call_counts() -> None:
    times = Timeline()
    times.landed()
    first = times.landed_ns
    times.landed()
    assert times.landed_ns == first


def test_a_stage_that_fails_is_timed_all_the_same() -> None:
    times = Timeline()
    with pytest.raises(ValueError, match="x"), times.stage(Stage.PLAN):
        raise ValueError("x")
    times.since(Stage.HOLD, times.began_ns)
    assert [each.stage for each in times.spans] == [Stage.PLAN, Stage.HOLD]
