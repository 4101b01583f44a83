"""Each planted fault is named; what is right, or only coarse, is not."""

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
def audited(talk: Any) -> Callable[[Rollout], Any]:
    return lambda rollout: audit_sequence(rollout, rollout.sequences[0], talk.model, SideFiles("nowhere"), Limits())


def _coarse(numbers: list[float], spread: float = 0.03) -> list[float]:
    dice = random.Random(0)
    return [each + dice.gauss(0.0, spread) for each in numbers]


def test_numbers_of_the_same_weights_are_exact(talk: Any, audited: Any) -> None:
    found = audited(talk.rollout(talk.exact))
    assert (found.verdict, found.finding, found.figures.tokens) == (Verdict.EXACT, None, 40)
    assert talk.model.runs == 1


def test_differences_that_go_both_ways_and_are_small_are_an_engines_noise(talk: Any, audited: Any) -> None:
    found = audited(talk.rollout(_coarse(talk.exact)))
    assert (found.verdict, found.finding) == (Verdict.ENGINE_NOISE, None)


def test_shifted_numbers_are_named_by_their_direction(talk: Any, audited: Any) -> None:
    for numbers in (talk.exact, _coarse(talk.exact)):
        early = audited(talk.rollout([*numbers[1:], -1.0]))
        late = audited(talk.rollout([-1.0, *numbers[:-1]]))
        assert (early.finding.kind, late.finding.kind) == (FaultKind.TOO_EARLY, FaultKind.TOO_LATE)
        assert early.finding.figures.mean_abs < 0.05


def test_logits_read_at_their_own_position_are_named(talk: Any, audited: Any) -> None:
    found = audited(talk.rollout(talk.numbers(own=1)))
    assert (found.verdict, found.finding.kind) == (Verdict.FAULT, FaultKind.OWN_POSITION)


@pytest.mark.parametrize(
    ("inside", "said", "sampling"), [(0.7, 1.0, 0.7), (0.7, 1.0, 1.0), (1.0, 0.7, 0.7), (1.37, 1.0, 1.0)]
)
def test_another_temperature_is_named_with_the_one_that_fits(
    talk: Any, audited: Any, inside: float, said: float, sampling: float
) -> None:
    found = audited(
        talk.rollout(talk.numbers(temperature=inside), call={"logprobs_temperature": said}, temperature=sampling)
    )
    assert (found.finding.kind, found.finding.temperature) == (FaultKind.TEMPERATURE, inside)


def test_numbers_of_the_whole_distribution_are_not_taken_for_those_behind_a_filter(talk: Any, audited: Any) -> None:
    assert audited(talk.rollout(talk.exact, top_k=5)).finding.kind == FaultKind.FILTER


def test_a_mode_before_the_filters_is_recomputed_without_them(talk: Any, audited: Any) -> None:
    assert audited(talk.rollout(talk.exact, call={"logprobs_mode": "temperature"}, top_k=5)).verdict is Verdict.EXACT


def test_raw_numbers_are_recomputed_at_temperature_1_with_penalties_and_all(talk: Any, audited: Any) -> None:
    raw = {"logprobs_mode": "raw", "logprobs_temperature": 1.0}
    assert audited(talk.rollout(talk.exact, call=raw, temperature=0.7, presence_penalty=1.0)).verdict is Verdict.EXACT


@pytest.mark.parametrize(
    ("call", "sampling", "why"),
    [
        ({"logprobs_mode": "none", "logprobs_temperature": None}, {}, "no log-probabilities were recorded"),
        ({}, {"presence_penalty": 0.5}, "a penalty stands inside the numbers"),
        ({}, {"repetition_penalty": 1.1}, "a penalty stands inside the numbers"),
        ({}, {"logit_bias": True}, "a logit bias stands inside the numbers"),
        ({}, {"structured_output": "0" * 64}, "a grammar stands inside the numbers"),
        ({}, {"temperature": 0.0}, "greedy sampling has no processed log-probabilities"),
    ],
)
def test_what_cannot_be_recomputed_is_said_and_left_out(
    talk: Any, audited: Any, call: dict[str, Any], sampling: dict[str, Any], why: str
) -> None:
    found = audited(talk.rollout(talk.exact, call=call, **sampling))
    assert (found.verdict, found.not_compared) == (Verdict.NOT_COMPARED, (why,))


def test_a_missing_number_is_left_out_and_the_others_are_compared(talk: Any, audited: Any) -> None:
    found = audited(talk.rollout([None, *talk.exact[1:]]))
    assert (found.verdict, found.figures.tokens) == (Verdict.EXACT, 39)
    assert found.not_compared == ("some log-probabilities are missing",)
