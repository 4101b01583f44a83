"""Comparing in the background: what is counted, what is skipped, and that nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from turnstile.generation import Head
from turnstile.history.forest import Forest
from turnstile.reports.drift import Run
from turnstile.reports.drift_sources import drift_of_forest, prompt_ids, prompt_of_call
from turnstile.reports.drift_watch import Attempt, DriftWatch, Seen, attempt_of
from turnstile.reports.shelf import ModelShelf
from turnstile.store import Reader
from turnstile.templates.served import Served

PATIENCE_S = 20.0


@pytest.fixture
def forest(left: Any, reader: Reader) -> Forest:
    return Forest.of(reader.records(left.rollout_id))


@pytest.fixture
def watch(shelf: ModelShelf) -> Iterator[DriftWatch]:
    with DriftWatch(shelf.served) as watch:
        yield watch


def test_every_answered_call_is_compared_and_the_figures_are_those_of_the_whole_report(
    watch: DriftWatch, forest: Forest, shelf: ModelShelf
) -> None:
    seen: list[Seen] = []
    watch.tell(seen.append)
    for call_id in forest.calls:
        watch.answered(forest, call_id)
    found = watch.settled(attempt_of(forest), PATIENCE_S)
    whole = drift_of_forest(forest, shelf)
    assert (found.calls, found.calls_compared, found.calls_differing) == (3, 3, 1)
    assert (found.prompt_sampled, found.prompt_wrong) == (whole.prompt_sampled, whole.prompt_wrong)
    assert (found.prompt_wrong_by_kind, found.calls_by_kind) == (whole.prompt_wrong_by_kind, {"json": 1})
    assert [each.difference is not None for each in seen] == [False, False, True]


def test_a_call_that_comes_while_too_many_wait_is_counted_as_not_compared(shelf: ModelShelf, forest: Forest) -> None:
    may_go, has_begun = threading.Event(), threading.Event()

    def held_up(head: Head) -> Served:
        has_begun.set()
        may_go.wait(PATIENCE_S)
        return shelf.served(head)

    with DriftWatch(held_up, waiting_calls=1) as watch:
        watch.answered(forest, "c0")
        assert has_begun.wait(PATIENCE_S)
        watch.answered(forest, "c1")
        watch.answered(forest, "c2")
        assert watch.figures(attempt_of(forest)).calls == 1
        assert watch.settled(attempt_of(forest), 0.01).calls_compared == 0
        may_go.set()
        found = watch.settled(attempt_of(forest), PATIENCE_S)
    assert (found.calls, found.calls_compared, found.calls_differing) == (3, 2, 0)


def test_what_cannot_be_compared_is_counted_and_stops_nothing(
    watch: DriftWatch, forest: Forest, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> Run:
        raise RuntimeError("no such call")

    head = next(iter(forest.heads.values()))
    watch.offer(attempt_of(forest), head, broken)
    watch.answered(forest, "c0")
    found = watch.settled(attempt_of(forest), PATIENCE_S)
    assert (found.calls, found.calls_compared) == (2, 1)
    assert "could not be compared" in caplog.text


def test_a_closed_watch_compares_nothing_and_waits_for_nobody(shelf: ModelShelf, forest: Forest) -> None:
    watch = DriftWatch(shelf.served)
    watch.close()
    watch.answered(forest, "c0")
    assert watch.settled(attempt_of(forest), PATIENCE_S).calls_compared == 0


def test_attempts_are_counted_apart(watch: DriftWatch, forest: Forest, wires: Any) -> None:
    started = forest.calls["c0"].started
    make: Callable[[], Run] = lambda: prompt_of_call(forest, started, prompt_ids(forest, started))  # noqa: E731
    for attempt in (1, 2):
        watch.offer(Attempt("r", attempt), forest.heads[started.head], make)
    assert [watch.settled(Attempt("r", attempt), PATIENCE_S).calls for attempt in (1, 2, 3)] == [1, 1, 0]


def test_nothing_is_an_attempt_of_no_rollout() -> None:
    with pytest.raises(ValueError, match="no rollout"):
        attempt_of(Forest())
