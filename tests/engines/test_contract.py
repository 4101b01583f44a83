"""What every engine owes, on the real ones."""

from __future__ import annotations

import asyncio
import json
import math

import pytest

from turnstile.engines.probability_gaps import ends_inside_character
from turnstile.errors import CallerError
from turnstile.generation import Draw, Finish, GrammarConstraint, SchemaConstraint
from turnstile.tokens import join

pytestmark = pytest.mark.engine

PARTY = "<|im_start|>user\nParty<|im_end|>\n<|im_start|>assistant\n🎉🎉🎈🎉🎉🎈🎉🎉🎈🎉🎉"
WORLD = "<|im_start|>assistant\n世界、你好。世界、你好。世界、你好。世界、"
QUESTION = "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n"


async def full_row(engine, tokenizer, ids, temperature):
    """log-softmax(logits / temperature) behind ids, worked out from the whole vocabulary in double precision."""
    letter = tokenizer.id_of("b")
    body = {"prompt": ids, "n_predict": 1, "n_probs": tokenizer.size, "logit_bias": [[letter, 1000.0]]}
    answer = json.loads((await engine.wire.post("/completion", json.dumps(body).encode())).body)
    row = {one["id"]: one["logprob"] / temperature for one in answer["completion_probabilities"][0]["top_logprobs"]}
    highest = max(row.values())
    total = math.log(math.fsum(math.exp(value - highest) for value in row.values()))
    return {token: value - highest - total for token, value in row.items()}


def unfinished(ids, tokenizer):
    text = b""
    marks = []
    for token in ids:
        text += tokenizer.token_bytes(token)
        marks.append(ends_inside_character(text))
    return marks


@pytest.mark.parametrize(("text", "temperature"), [(PARTY, 0.7), (PARTY, 1.0), (WORLD, 0.3)])
async def test_case_k1_log_probabilities_of_emoji_and_cjk_are_those_of_the_full_row(
    real_engine, smollm_tokenizer, ask, text, temperature
):
    ids = smollm_tokenizer.encode(text).tolist()
    answered = await ask(real_engine, ids, Draw(temperature=temperature, seed=4, max_tokens=10))
    marks = unfinished(answered.ids, smollm_tokenizer)
    assert any(marks)
    assert "logprob_filled" in answered.notes
    for at in [*[at for at, mark in enumerate(marks) if mark][:3], 0, len(marks) - 1]:
        row = await full_row(real_engine, smollm_tokenizer, ids + answered.ids[:at], temperature)
        assert answered.logprobs[at] == pytest.approx(row[answered.ids[at]], abs=1e-4)


async def test_at_temperature_0_the_likeliest_token_is_sampled_with_its_own_number(real_engine, smollm_tokenizer, ask):
    ids = smollm_tokenizer.encode(PARTY).tolist()
    answered = await ask(real_engine, ids, Draw(temperature=0.0, max_tokens=3))
    for at in range(3):
        row = await full_row(real_engine, smollm_tokenizer, ids + answered.ids[:at], 1.0)
        assert answered.ids[at] == max(row, key=row.get)
        assert answered.logprobs[at] == pytest.approx(row[answered.ids[at]], abs=5e-4)


async def test_the_same_seed_gives_the_same_ids_and_another_one_others(real_engine, smollm_tokenizer, ask):
    ids = smollm_tokenizer.encode(PARTY).tolist()
    first = await ask(real_engine, ids, Draw(seed=1, max_tokens=24))
    again = await ask(real_engine, ids, Draw(seed=1, max_tokens=24))
    other = await ask(real_engine, ids, Draw(seed=2, max_tokens=24))
    assert again.ids == first.ids
    assert again.logprobs == pytest.approx(first.logprobs, abs=1e-4)
    assert other.ids != first.ids


async def test_choices_side_by_side_are_what_each_is_alone(real_engine, smollm_tokenizer, ask):
    ids = smollm_tokenizer.encode(QUESTION).tolist()
    draws = [Draw(seed=5, choice=choice, max_tokens=12, affinity="a") for choice in range(3)]
    together = await asyncio.gather(*(ask(real_engine, ids, draw) for draw in draws))
    alone = [await ask(real_engine, ids, draw) for draw in draws]
    assert [answered.ids for answered in together] == [answered.ids for answered in alone]
    assert together[0].ids != together[1].ids


async def test_deltas_add_up_and_counts_agree(real_engine, smollm_tokenizer, ask):
    ids = smollm_tokenizer.encode(QUESTION).tolist()
    answered = await ask(real_engine, ids, Draw(seed=3, max_tokens=20))
    assert join(delta.ids_S for delta in answered.deltas) == answered.generation.ids_S
    assert len(answered.ids) == len(answered.logprobs) == answered.generation.usage.completion_tokens
    assert answered.generation.usage.prompt_tokens == len(ids)
    assert all(value <= 0 for value in answered.logprobs)


async def test_a_stop_token_is_the_last_id_of_a_stopped_answer(real_engine, smollm_tokenizer, ask):
    stop = smollm_tokenizer.id_of("<|im_end|>")
    ids = smollm_tokenizer.encode(QUESTION).tolist()
    draw = Draw(seed=1, max_tokens=100, stop_ids=frozenset({stop}), logit_bias=((stop, 9.0),))
    answered = await ask(real_engine, ids, draw)
    assert answered.ids[-1] == stop
    assert answered.generation.finish is Finish.STOP


async def test_a_stop_string_ends_the_answer_with_the_token_that_completes_it(real_engine, smollm_tokenizer, ask):
    counting = "One, two, three, four, five, six, seven, eight, nine, ten, one, two, three, four, five,"
    ids = smollm_tokenizer.encode(f"<|im_start|>assistant\n{counting}").tolist()
    answered = await ask(real_engine, ids, Draw(temperature=0.0, max_tokens=40, stop=("seven, ei",)))
    text = b"".join(map(smollm_tokenizer.token_bytes, answered.ids)).decode()
    before = b"".join(map(smollm_tokenizer.token_bytes, answered.ids[:-1])).decode()
    assert "seven, ei" in text
    assert "seven, ei" not in before
    assert (answered.generation.finish, answered.generation.stop_string) == (Finish.STOP, "seven, ei")


async def test_penalties_mean_the_same_in_pieces_as_in_one_request(real_engine, smollm_tokenizer, ask):
    ids = smollm_tokenizer.encode(QUESTION).tolist()
    draw = Draw(temperature=0.0, max_tokens=12, frequency_penalty=1.5)
    answered = await ask(real_engine, ids, draw)
    body = {"prompt": ids, "n_predict": 12, "temperature": 0, "samplers": ["penalties", "temperature"]}
    body |= {"frequency_penalty": 1.5, "repeat_last_n": 256, "return_tokens": True}
    whole = json.loads((await real_engine.wire.post("/completion", json.dumps(body).encode())).body)
    assert answered.ids == whole["tokens"]


async def test_a_schema_constrains_the_answer(real_engine, smollm_tokenizer, ask):
    ids = smollm_tokenizer.encode(QUESTION).tolist()
    properties = '"properties":{"colour":{"enum":["red","blue"]}},"required":["colour"],"additionalProperties":false'
    schema = '{"type":"object",' + properties + "}"
    # A small model may fill its answer with the blanks that JSON allows; how a seed goes depends on the processor.
    for seed in range(1, 17):
        answered = await ask(real_engine, ids, Draw(seed=seed, max_tokens=40, constraint=SchemaConstraint(schema)))
        if answered.generation.finish is Finish.STOP:
            break
    text = b"".join(token for token in map(smollm_tokenizer.token_bytes, answered.ids) if not token.startswith(b"<|"))
    assert json.loads(text)["colour"] in ("red", "blue")
    assert None not in answered.logprobs


async def test_cancelling_frees_the_engines_slot(real_engine, smollm_tokenizer, ask):
    ids = smollm_tokenizer.encode(QUESTION).tolist()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await ask(real_engine, ids, Draw(seed=1, constraint=GrammarConstraint("root ::= [a-z ]+")))
    # llama.cpp looks for closed connections when no result was ready for a second, so asking often keeps it busy.
    await asyncio.sleep(2.5)
    slots = json.loads((await real_engine.wire.get("/slots")).body)
    assert [slot["is_processing"] for slot in slots] == [False, False]


async def test_the_context_end_is_a_length_stop_and_a_longer_prompt_the_callers_error(
    real_engine, smollm_tokenizer, ask
):
    word = smollm_tokenizer.encode(" word").tolist()
    answered = await ask(real_engine, word * 252, Draw(seed=1, max_tokens=50))
    assert answered.generation.finish is Finish.LENGTH
    assert len(answered.ids) <= 4
    with pytest.raises(CallerError, match="300 tokens and the engine's context holds 256"):
        await ask(real_engine, word * 300)


async def test_the_engines_pieces_are_the_tokenizers_bytes(real_engine, smollm_tokenizer):
    body = {"prompt": [1], "n_predict": 1, "n_probs": smollm_tokenizer.size, "logit_bias": [[81, 1000.0]]}
    answer = json.loads((await real_engine.wire.post("/completion", json.dumps(body).encode())).body)
    for one in answer["completion_probabilities"][0]["top_logprobs"]:
        hidden = smollm_tokenizer.is_special(one["id"])
        assert bytes(one["bytes"]) == (b"" if hidden else smollm_tokenizer.token_bytes(one["id"]))


async def test_how_much_of_a_prompt_was_in_the_engines_cache_is_told(real_engine, smollm_tokenizer, ask):
    ids = smollm_tokenizer.encode(QUESTION).tolist()
    first = await ask(real_engine, ids, Draw(max_tokens=4, affinity="one"))
    again = await ask(real_engine, ids + first.ids, Draw(max_tokens=1, affinity="one"))
    # The last token of a prompt is always computed, and the last one sampled was never put into the cache.
    assert again.generation.usage.cached_tokens == len(ids) + len(first.ids) - 1
