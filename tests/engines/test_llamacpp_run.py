from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.generation import Draw
from turnstile.tokens import join

EOS = 1


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text("ab é好🙂", max_size=40), temperature=st.sampled_from([0.0, 0.7, 1.0]))
async def test_whatever_the_text_ids_and_numbers_are_those_of_the_engine(
    engine, fake, vocabulary, ask, text, temperature
):
    scripted = [*vocabulary.spell(text), EOS]
    fake.script(scripted)
    answered = await ask(engine, [5, 6], Draw(temperature=temperature))
    assert answered.ids == scripted
    assert answered.logprobs == pytest.approx([fake.logprob(one, temperature or 1.0) for one in scripted], abs=1e-5)
    assert join(delta.ids_S for delta in answered.deltas) == answered.generation.ids_S


async def test_sampling_goes_on_right_behind_the_first_token_of_a_character(engine, fake, vocabulary, ask):
    scripted = [*vocabulary.spell("abcdef🙂xyz"), EOS]
    fake.script(scripted)
    answered = await ask(engine, [5])
    sampled = [body for body in fake.requests if not body["logit_bias"]]
    assert [len(body["prompt"]) - 1 for body in sampled] == [0, 2, 7]
    echo = json.loads(answered.generation.sampler_echo)
    assert (echo["requests"], echo["sampled_again"]) == (3, 7)


async def test_an_answer_that_may_hold_no_token_asks_the_engine_nothing(engine, fake, ask):
    answered = await ask(engine, [5], Draw(max_tokens=0))
    assert (answered.ids, fake.requests) == ([], [])
