from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.tokens import IdRun
from turnstile.trajectory.nearest import HeldSequences

IDS = st.lists(st.integers(1, 3), min_size=1, max_size=6)


def common(a, b):
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_nothing_held_is_near_nothing():
    assert HeldSequences().nearest(IdRun.of([1])) is None


def test_a_run_that_was_extended_is_found_in_what_extends_it(journal):
    first = journal.turn("a", [1, 2], [3])
    journal.turn("b", [4], [5], first)
    held = HeldSequences()
    for node in journal.forest().nodes:
        held.add(node)
    nearest = held.nearest(IdRun.of([1, 2, 3, 9]))
    assert (str(nearest.ref), nearest.agrees_T) == ("b", 3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(runs=st.lists(IDS, min_size=1, max_size=6), prompt=IDS)
def test_no_held_run_agrees_longer_than_the_nearest(new_journal, runs, prompt):
    journal = new_journal()
    for number, run in enumerate(runs):
        journal.turn(f"c{number}", run, [7])
    held = HeldSequences()
    for node in journal.forest().nodes:
        held.add(node)
    assert held.nearest(IdRun.of(prompt)).agrees_T == max(common(prompt, [*run, 7]) for run in runs)
