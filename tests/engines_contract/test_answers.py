"""What every engine owes when nothing goes wrong."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnstile.errors import CallerError, EngineError
from turnstile.generation import Draw, Finish, LogprobsMode
from turnstile.tokens import join

pytestmark = pytest.mark.engine

PATIENCE_S = 30.0


async def test_every_sampled_id_comes_once_with_a_number_and_is_counted(subject: Any) -> None:
    ids = subject.question()
    answered = await subject.ask(ids, Draw(seed=3, max_tokens=12, stop_ids=frozenset({subject.stop_id})))
    assert join(delta.ids_S for delta in answered.deltas) == answered.generation.ids_S
    assert 1 <= len(answered.ids) == len(answered.logprobs) == answered.generation.usage.completion_tokens
    assert all(value is not None and value <= 0 for value in answered.logprobs)
    assert answered.verdict.incomplete == ()


async def test_the_prompts_ids_are_echoed_or_at_least_counted(subject: Any) -> None:
    ids = subject.question()
    answered = await subject.ask(ids, Draw(seed=3, max_tokens=2))
    told = {"ids": ids, "count": None}[subject.engine.capabilities.echoes_prompt_ids]
    echo = answered.generation.prompt_echo_T
    assert (echo.tolist() if echo is not None else None) == told
    assert answered.generation.usage.prompt_tokens == len(ids)


async def test_a_sampled_stop_token_is_the_last_id(subject: Any) -> None:
    ids = subject.question()
    draw = Draw(seed=1, stop_ids=frozenset({subject.stop_id}), logit_bias=((subject.stop_id, 9.0),), max_tokens=100)
    answered = await subject.ask(ids, draw)
    assert answered.ids[-1] == subject.stop_id
    assert answered.ids.count(subject.stop_id) == 1
    assert (answered.generation.finish, answered.verdict.finish) == (Finish.STOP, Finish.STOP)


async def test_a_foreign_stop_token_ends_the_answer_too(subject: Any) -> None:
    ids = subject.question()
    first = await subject.ask(ids, Draw(temperature=0.0, max_tokens=4, seed=1))
    draw = Draw(temperature=0.0, max_tokens=4, seed=1, stop_ids=frozenset({first.ids[1]}))
    answered = await subject.ask(subject.question(), draw)
    end = first.ids.index(first.ids[1])
    assert answered.ids == first.ids[: end + 1]
    assert answered.verdict.finish is Finish.STOP


async def test_a_stop_string_keeps_the_ids_that_spell_it_and_none_behind(subject: Any) -> None:
    ids = subject.question()
    plain = await subject.ask(ids, Draw(temperature=0.0, max_tokens=12))
    spelled = subject.text(plain.ids[:4])[-2:]
    answered = await subject.ask(subject.question(), Draw(temperature=0.0, max_tokens=12, stop=(spelled,)))
    count = next(at for at in range(1, 5) if spelled in subject.text(plain.ids[:at]))
    assert answered.ids == plain.ids[:count]
    assert len(answered.logprobs) == count
    assert (answered.verdict.finish, answered.generation.stop_string) == (Finish.STOP, spelled)


async def test_an_answer_cut_by_its_limit_has_that_many_ids(subject: Any) -> None:
    answered = await subject.ask(subject.question(), Draw(temperature=0.0, max_tokens=2))
    assert len(answered.ids) == 2
    assert (answered.generation.finish, answered.verdict.finish) == (Finish.LENGTH, Finish.LENGTH)
    assert answered.verdict.incomplete == ()


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
async def test_log_probabilities_mean_what_is_said_of_them(subject: Any, temperature: float) -> None:
    ids = subject.question()
    answered = await subject.ask(ids, Draw(temperature=temperature, seed=5, max_tokens=2))
    mode, inside = answered.generation.logprobs_mode, answered.generation.logprobs_temperature
    expected = {1.0: 1.0, 0.7: 0.7, 0.0: 1.0}[temperature]
    assert mode in ({LogprobsMode.RAW} if temperature == 0 else {LogprobsMode.TEMPERATURE, LogprobsMode.PROCESSED})
    assert inside == expected
    for at, sampled in enumerate(answered.ids):
        row = await subject.row([*ids, *answered.ids[:at]], expected)
        assert answered.logprobs[at] == pytest.approx(row[sampled], abs=subject.near)
        if temperature == 0 and not hasattr(subject, "fake"):
            assert row[sampled] == pytest.approx(max(row.values()), abs=subject.near)


async def test_a_seed_names_an_answer_and_its_choices_differ(subject: Any) -> None:
    if hasattr(subject, "fake"):
        pytest.skip("a fake does not draw")
    if subject.near > 0.01:
        pytest.skip("its numbers depend on what shares its batch, and so may the token that is drawn")
    draws = [Draw(seed=5, choice=choice, max_tokens=16, affinity="a") for choice in range(3)]
    together = await asyncio.gather(*(subject.ask(subject.question(), draw) for draw in draws))
    alone = [await subject.ask(subject.question(), draw) for draw in draws]
    assert [answered.ids for answered in together] == [answered.ids for answered in alone]
    assert len({tuple(answered.ids) for answered in together}) > 1


async def test_choices_side_by_side_do_not_mix(subject: Any) -> None:
    ids = subject.question(times=3)
    answers = await asyncio.gather(
        *(subject.ask(ids, Draw(temperature=0.0, max_tokens=6, choice=choice, seed=1)) for choice in range(3))
    )
    assert len({tuple(answered.ids) for answered in answers}) == 1
    assert all(answered.verdict.incomplete == () for answered in answers)


async def test_hanging_up_frees_the_engine(subject: Any) -> None:
    ids, draw = subject.endless()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.4):
            await subject.ask(ids, draw)
    async with asyncio.timeout(PATIENCE_S):
        while not await subject.is_idle():  # noqa: ASYNC110 - it is another process that becomes idle
            await asyncio.sleep(subject.look_again_s)


async def test_the_contexts_end_is_a_limit_and_not_an_error(subject: Any) -> None:
    ids, draw = subject.endless()
    if hasattr(subject, "fake"):
        subject.fake.token_delay_s = 0.0
    prompt = (ids * subject.context)[: subject.context - 3]
    answered = await subject.ask(prompt, draw)
    assert 1 <= len(answered.ids) <= 4
    assert answered.verdict.finish is Finish.LENGTH


async def test_a_prompt_that_is_too_long_is_the_callers_error(subject: Any) -> None:
    ids = subject.question()
    prompt = (ids * subject.context)[: subject.context + 40]
    with pytest.raises(CallerError) as caught:
        await subject.ask(prompt, Draw(max_tokens=4))
    assert caught.value.code == "context_length_exceeded"


async def test_an_id_outside_the_vocabulary_is_refused_and_harms_nobody(subject: Any) -> None:
    size = max(subject.vocabulary.size, subject.engine.capabilities.vocab_size or 0)
    if subject.name.startswith("SGLang"):
        pytest.skip("the fake has no vocabulary check: the source read does not show one")
    with pytest.raises(EngineError) as caught:
        await subject.ask([*subject.question(), size + 100_000], Draw(max_tokens=2))
    assert caught.value.code == "engine_refused"
    answered = await subject.ask(subject.question(), Draw(max_tokens=2))
    assert answered.verdict.incomplete == ()


async def test_the_engine_is_well(subject: Any) -> None:
    assert await subject.engine.health() == ""


async def test_many_answers_in_a_row_do_not_depend_on_connections_that_an_engine_may_have_closed(subject: Any) -> None:
    for _ in range(20):
        answered = await subject.ask(subject.question(), Draw(temperature=0.0, max_tokens=2))
        assert (len(answered.ids), answered.verdict.incomplete) == (2, ())
