"""What vLLM's numbers mean."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.conversation import NamedTool, ToolMode
from turnstile.engines.vllm_numbers import Meaning, constrained_note, is_constrained, meaning
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
def test_case_d2_a_number_says_which_distribution_it_belongs_to(prompt, measured, draw, mode, temperature):
    assert meaning(measured, prompt([2]), draw) == Meaning(mode, temperature)


@pytest.mark.parametrize(
    ("choice", "held"),
    [(None, False), (ToolMode.AUTO, False), (ToolMode.NONE, False), (ToolMode.REQUIRED, True), (NamedTool("go"), True)],
)
def test_a_call_that_the_server_enforces_is_a_constraint(prompt, choice, held):
    asked = msgspec.structs.replace(prompt([2]), read_with=choice)
    assert is_constrained(asked, Draw()) is held
    mode = LogprobsMode.UNKNOWN if held else LogprobsMode.RAW
    assert meaning(RAW, asked, Draw(temperature=0.7)).mode is mode


def test_a_constrained_answer_s_note_says_what_its_numbers_are():
    assert constrained_note(Meaning(PROCESSED, 1.0)).endswith("of the constrained distribution")
    assert "not the rest" in constrained_note(Meaning(UNKNOWN, None))
