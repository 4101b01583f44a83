"""What vLLM's numbers mean."""

from __future__ import annotations

import pytest

from turnstile.engines.vllm_numbers import Meaning, constrained_note, meaning
from turnstile.generation import Draw, GrammarConstraint, LogprobsMode

RAW, PROCESSED, UNKNOWN = LogprobsMode.RAW, LogprobsMode.PROCESSED, LogprobsMode.UNKNOWN
GRAMMAR = GrammarConstraint("g")


@pytest.mark.parametrize(
    ("measured", "draw", "mode", "temperature"),
    [
        (RAW, Draw(temperature=0.7), RAW, 1.0),
        (RAW, Draw(temperature=0.7, top_p=0.5, presence_penalty=1.0), RAW, 1.0),
        (PROCESSED, Draw(temperature=0.7, top_p=0.5), PROCESSED, 0.7),
        # A temperature just above 0 is raised to 0.01.
        (PROCESSED, Draw(temperature=0.001), PROCESSED, 0.01),
        # At temperature 0 nothing is divided, whatever the mode.
        (RAW, Draw(temperature=0.0), RAW, 1.0),
        (PROCESSED, Draw(temperature=0.0), RAW, 1.0),
        (PROCESSED, Draw(temperature=0.0, top_k=5), RAW, 1.0),
        (PROCESSED, Draw(temperature=0.0, frequency_penalty=0.5), UNKNOWN, None),
        (PROCESSED, Draw(temperature=0.0, logit_bias=((1, 1.0),)), UNKNOWN, None),
        # A grammar's mask lies on the logits before either number is taken.
        (RAW, Draw(constraint=GRAMMAR), PROCESSED, 1.0),
        (RAW, Draw(temperature=0.7, constraint=GRAMMAR), UNKNOWN, None),
        (RAW, Draw(top_k=5, constraint=GRAMMAR), UNKNOWN, None),
        (RAW, Draw(temperature=0.0, constraint=GRAMMAR), UNKNOWN, None),
        (PROCESSED, Draw(temperature=0.7, constraint=GRAMMAR), PROCESSED, 0.7),
        (UNKNOWN, Draw(), UNKNOWN, None),
    ],
)
def test_case_d2_a_number_says_which_distribution_it_belongs_to(measured, draw, mode, temperature):
    assert meaning(measured, draw) == Meaning(mode, temperature)


def test_a_constrained_answer_s_note_says_what_its_numbers_are():
    assert constrained_note(Meaning(PROCESSED, 1.0)).endswith("of the constrained distribution")
    assert "not the rest" in constrained_note(Meaning(UNKNOWN, None))
