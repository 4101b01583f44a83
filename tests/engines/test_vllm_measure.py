"""Telling raw numbers from processed ones."""

from __future__ import annotations

import math

import pytest

from turnstile.engines.vllm_measure import PROBE_TEMPERATURE, is_logits, measured
from turnstile.generation import LogprobsMode

LOGITS = {1: 3.0, 2: 1.5, 3: 0.0, 4: -2.0}


def softmax(logits, temperature=1.0):
    total = math.log(math.fsum(math.exp(each / temperature) for each in logits.values()))
    return {token: each / temperature - total for token, each in logits.items()}


RAW = softmax(LOGITS)


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_raw_numbers_are_those_of_the_prompt(noise):
    sampled = {token: value + noise * (-1) ** token for token, value in RAW.items()}
    assert measured([(sampled, RAW)]) is LogprobsMode.RAW


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_processed_numbers_are_apart_by_the_temperature(noise):
    sampled = {token: value + noise * (-1) ** token for token, value in softmax(LOGITS, PROBE_TEMPERATURE).items()}
    assert measured([(sampled, RAW)]) is LogprobsMode.PROCESSED


@pytest.mark.parametrize(
    "places",
    [
        [],
        [({1: -0.5}, {2: -0.5})],
        [({1: -0.5}, {1: -0.5})],
        # A model that finds all ids alike tells nothing.
        [({1: -1.0, 2: -1.01}, {1: -1.0, 2: -1.01})],
        # Neither.
        [({1: -0.5, 2: -2.5}, {1: -0.5, 2: -1.5})],
    ],
)
def test_places_that_do_not_tell_are_unknown(places):
    assert measured(places) is LogprobsMode.UNKNOWN


def test_numbers_above_0_or_worth_more_than_1_together_are_logits():
    assert is_logits([(LOGITS, RAW)])
    assert is_logits([(RAW, {1: -0.1, 2: -0.2})])
    assert not is_logits([(RAW, softmax(LOGITS, PROBE_TEMPERATURE))])
