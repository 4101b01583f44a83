from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.engines.llamacpp_shapes import Candidate
from turnstile.engines.logprob_fill import tilt, untilted, whole_row

LOGITS = st.lists(st.floats(-20, 20), min_size=3, max_size=40)
TEMPERATURES = st.floats(0.2, 2.0)


def row_of(logits, shift=0.0):
    total = math.log(math.fsum(map(math.exp, logits)))
    return [Candidate(id=at, logprob=logit - total + shift) for at, logit in enumerate(logits)]


def tempered(logits, temperature):
    weights = [logit / temperature for logit in logits]
    top = max(weights)
    total = top + math.log(math.fsum(math.exp(weight - top) for weight in weights))
    return [weight - total for weight in weights]


@given(LOGITS, TEMPERATURES)
def test_a_whole_row_gives_the_tempered_number_whatever_constant_the_server_is_off_by(logits, temperature):
    got = whole_row(row_of(logits, shift=1.3e-4), 1, temperature, len(logits))
    assert got == pytest.approx(tempered(logits, temperature)[1], abs=1e-9)


def test_a_row_that_leaves_out_tokens_gives_no_number():
    assert whole_row(row_of([1.0, 2.0, 3.0])[:2], 1, 1.0, 3) is None


@given(LOGITS, TEMPERATURES)
def test_the_bias_makes_its_token_likely_and_is_taken_out_again_exactly(logits, temperature):
    bias = tilt(row_of(logits), 0, row_of(logits)[0].logprob, temperature)
    biased = tempered([logits[0] + bias, *logits[1:]], temperature)
    assert math.exp(biased[0]) == pytest.approx(0.9)
    assert untilted(math.exp(biased[0]), bias, temperature) == pytest.approx(tempered(logits, temperature)[0], abs=1e-9)
