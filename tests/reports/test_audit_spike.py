"""One wrong id, or one wrong number: which, and where."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from turnstile.reports.audit import audit_sequence
from turnstile.reports.audit_figures import Limits, Verdict
from turnstile.reports.audit_run import FaultKind
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.side_files import SideFiles


@pytest.fixture
def talk(toy: Any) -> Any:
    return toy.Talk()


@pytest.fixture
def finding(talk: Any) -> Callable[[Rollout], Any]:
    def find(rollout: Rollout) -> Any:
        return audit_sequence(rollout, rollout.sequences[0], talk.model, SideFiles("nowhere"), Limits()).finding

    return find


def _coarse(numbers: list[float]) -> list[float]:
    dice = random.Random(0)
    return [each + dice.gauss(0.0, 0.03) for each in numbers]


@pytest.mark.parametrize("at", [0, 3, 7, 29, 33])
def test_a_wrong_prompt_id_is_found_with_the_right_one_by_the_hash_of_what_the_engine_ran(
    talk: Any, finding: Any, at: int
) -> None:
    for numbers in (talk.exact, _coarse(talk.exact)):
        found = finding(talk.rollout(numbers, talk.swapped(at)))
        assert (found.kind, found.start, found.end) == (FaultKind.WRONG_PROMPT_ID, at, at + 1)
        assert found.token_id == talk.ids[at]
        assert found.call == (0 if at < 8 else 1)


def test_where_the_hash_is_of_no_help_the_first_number_that_does_not_fit_bounds_the_place(
    talk: Any, finding: Any
) -> None:
    ids = talk.swapped(31)
    found = finding(talk.rollout(talk.exact, ids, hashed=ids))
    assert (found.kind, found.start, found.end, found.call) == (FaultKind.WRONG_PROMPT_ID, 28, 34, 1)


def test_a_missing_prompt_id_gives_the_region_in_which_it_is_missing(talk: Any, finding: Any) -> None:
    # Another id has come in its stead at the end, so that the answers stand where they stood.
    ids = [*talk.ids[:29], *talk.ids[30:34], talk.ids[33], *talk.ids[34:]]
    found = finding(talk.rollout(talk.exact, ids))
    assert (found.kind, found.start, found.end, found.token_id) == (FaultKind.WRONG_PROMPT_ID, 28, 34, None)


@pytest.mark.parametrize("index", [5, 20, 31])
def test_a_wrong_sampled_id_is_found_with_the_one_that_was_sampled(talk: Any, finding: Any, index: int) -> None:
    at = talk.places[index]
    found = finding(talk.rollout(talk.exact, talk.swapped(at)))
    assert (found.kind, found.start, found.token_id) == (FaultKind.WRONG_SAMPLED_ID, at, talk.ids[at])
    assert found.figures.verdict(Limits()) is Verdict.EXACT


@pytest.mark.parametrize("index", [0, 12, 39])
def test_a_wrong_number_disturbs_no_other(talk: Any, finding: Any, index: int) -> None:
    for numbers in (talk.exact, _coarse(talk.exact)):
        wrong = [each - 3.0 if at == index else each for at, each in enumerate(numbers)]
        found = finding(talk.rollout(wrong))
        assert (found.kind, found.start) == (FaultKind.WRONG_NUMBER, talk.places[index])


def test_another_model_is_explained_by_nothing(talk: Any, finding: Any) -> None:
    found = finding(talk.rollout(talk.numbers(seed=2)))
    assert (found.kind, found.start, found.end) == (FaultKind.UNEXPLAINED, 0, 8)
    assert "not the model" in found.said
