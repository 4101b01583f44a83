from __future__ import annotations

import asyncio
import json

import pytest

from turnstile.engines import LlamaServer
from turnstile.errors import CallerError, EngineError
from turnstile.generation import Draw, Finish, Free, GrammarConstraint, LogprobsMode, SchemaConstraint
from turnstile.tokens import join

EOS = 1
LONG = "A line that is longer than the first few requests together, so that several of them are needed."


def sampling(fake):
    return [body for body in fake.requests if not body.get("logit_bias")]


async def test_opening_reads_what_the_server_says_of_itself(fake, vocabulary):
    server = await LlamaServer.open(fake.url)
    said = server.capabilities
    await server.close()
    assert (said.engine, said.version, said.models, said.context_length, said.concurrency, said.vocab_size) == (
        "llamacpp",
        "b0-fake",
        ("fake",),
        4096,
        2,
        vocabulary.size,
    )


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (404, "<html><h1>Not found</h1></html>", "(no /props)"),
        (404, '{"detail":"Not Found"}', "(no /props)"),
        (405, "", "(no /props)"),
        (302, "", "(status 302 for /props)"),
        (200, "<html>Welcome</html>", "(/props is no JSON object)"),
        (200, "[]", "(/props is no JSON object)"),
    ],
)
async def test_another_server_is_told_from_llamacpp_without_its_page(status, body, told):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(CallerError) as refused:
            await LlamaServer.open(url)
    assert refused.value.code == "engine_address"
    assert refused.value.problem == f"What answers at {url} is not llama.cpp's server {told}"
    assert refused.value.remedy == (
        "Give the address of a llama.cpp, vLLM or SGLang server, and say which one it is with --engine-kind"
    )


async def test_an_answer_is_the_ids_that_were_sampled_with_the_stop_token_last(engine, fake, vocabulary, ask):
    scripted = [*vocabulary.spell(LONG), EOS]
    fake.script(scripted)
    answered = await ask(engine, [5, 6, 7])
    assert answered.ids == scripted
    assert answered.generation.finish is Finish.STOP
    assert answered.generation.usage.prompt_tokens == 3
    assert answered.generation.usage.completion_tokens == len(scripted)


async def test_deltas_add_up_to_the_answer_and_the_first_one_is_short(engine, fake, vocabulary, ask):
    fake.script([*vocabulary.spell(LONG), EOS])
    answered = await ask(engine, [5])
    assert join(delta.ids_S for delta in answered.deltas) == answered.generation.ids_S
    assert [len(delta.ids_S) for delta in answered.deltas[:4]] == [2, 16, 48, 30]


async def test_the_first_delta_comes_while_the_engine_is_still_sampling(engine, fake, vocabulary, prompt):
    fake.script([*vocabulary.spell(LONG), EOS])
    fake.token_delay_s = 0.002
    requests_at_delta = []

    async def emit(_delta):
        requests_at_delta.append(len(fake.requests))

    await engine.generate(prompt([5]), Draw(), emit)
    assert requests_at_delta == list(range(1, len(fake.requests) + 1))


async def test_log_probabilities_are_natural_logs_of_the_tempered_distribution(engine, fake, vocabulary, ask):
    scripted = [*vocabulary.spell("warm"), EOS]
    fake.script(scripted)
    answered = await ask(engine, [5], Draw(temperature=0.7))
    assert answered.generation.logprobs_mode is LogprobsMode.PROCESSED
    assert answered.generation.logprobs_temperature == 0.7
    assert answered.logprobs == pytest.approx([fake.logprob(token, 0.7) for token in scripted], abs=1e-5)


async def test_at_temperature_0_the_models_own_log_probabilities_are_recorded(engine, fake, vocabulary, ask):
    scripted = [*vocabulary.spell("cold"), EOS]
    fake.script(scripted)
    answered = await ask(engine, [5], Draw(temperature=0.0))
    assert (answered.generation.logprobs_mode, answered.generation.logprobs_temperature) == (LogprobsMode.RAW, 1.0)
    assert answered.logprobs == pytest.approx([fake.logprob(token) for token in scripted], abs=1e-5)


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0, 1.4])
async def test_case_k1_tokens_that_are_part_of_a_character_keep_ids_and_exact_numbers(
    engine, fake, vocabulary, ask, temperature
):
    scripted = [*vocabulary.spell("a "), 258, *vocabulary.spell("🎉")[2:], *vocabulary.spell(" 好🙂 z"), EOS]
    fake.script(scripted)
    answered = await ask(engine, [5], Draw(temperature=temperature))
    assert answered.ids == scripted
    assert answered.logprobs == pytest.approx([fake.logprob(token, temperature or 1.0) for token in scripted], abs=1e-5)
    assert answered.notes == {"logprob_filled": "n=3"}


async def test_case_k1_an_answer_that_is_cut_inside_a_character_keeps_its_ids(engine, fake, vocabulary, ask):
    fake.script(vocabulary.spell("🙂🙂"))
    answered = await ask(engine, [5], Draw(max_tokens=2))
    assert answered.ids == vocabulary.spell("🙂")[:2]
    assert answered.generation.finish is Finish.LENGTH
    assert None not in answered.logprobs


async def test_a_number_under_filters_that_cannot_be_rebuilt_is_unknown_and_noted(engine, fake, vocabulary, ask):
    fake.script([*vocabulary.spell("🙂!"), EOS])
    answered = await ask(engine, [5], Draw(top_p=0.9))
    assert answered.logprobs[0] is None
    assert None not in answered.logprobs[1:]
    assert answered.notes == {"logprob_missing": "n=1"}


async def test_case_d1_what_lies_behind_a_stop_string_is_dropped_from_every_array(engine, fake, vocabulary, ask):
    fake.script([*vocabulary.spell("one two "), 259, 259, *vocabulary.spell("x"), EOS])
    answered = await ask(engine, [5], Draw(stop=("ha ha",), top_logprobs=1))
    assert answered.ids == [*vocabulary.spell("one two "), 259, 259]
    assert len(answered.logprobs) == len(answered.ids) == sum(len(delta.logprobs) for delta in answered.deltas)
    assert answered.generation.finish is Finish.STOP
    assert answered.generation.stop_string == "ha ha"
    assert answered.notes["trimmed_past_stop"] == "n=2"


@pytest.mark.parametrize("at", range(16))
async def test_a_stop_string_is_found_wherever_a_request_ends_in_it(engine, fake, vocabulary, ask, at):
    fake.script([*vocabulary.spell("." * at + "Observation: more"), EOS])
    answered = await ask(engine, [5], Draw(stop=("Observation:",)))
    assert answered.ids == vocabulary.spell("." * at + "Observation:")


async def test_a_stop_token_that_the_server_does_not_stop_at_ends_the_answer(engine, fake, vocabulary, ask):
    fake.script([*vocabulary.spell("done"), 0, *vocabulary.spell("more"), EOS])
    answered = await ask(engine, [5], Draw(stop_ids=frozenset({0, EOS})))
    assert answered.ids == [*vocabulary.spell("done"), 0]
    assert answered.generation.finish is Finish.STOP


async def test_max_tokens_ends_the_answer_to_the_token(engine, fake, vocabulary, ask):
    fake.script([*vocabulary.spell(LONG), EOS])
    answered = await ask(engine, [5], Draw(max_tokens=20))
    assert answered.ids == vocabulary.spell(LONG)[:20]
    assert answered.generation.finish is Finish.LENGTH


async def test_the_end_of_the_context_ends_the_answer(engine, fake, vocabulary, ask):
    fake.script(vocabulary.spell("." * 100))
    answered = await ask(engine, [5] * 4060)
    assert len(answered.ids) == 36
    assert answered.generation.finish is Finish.LENGTH


async def test_every_sampler_setting_is_said_and_the_defaults_are_neutral(engine, fake, vocabulary, ask):
    fake.script([EOS])
    await ask(engine, [5])
    said = fake.requests[0]
    assert said["samplers"] == ["temperature"]
    assert (said["temperature"], said["top_k"], said["top_p"], said["min_p"]) == (1.0, 0, 1.0, 0.0)
    assert (said["repeat_penalty"], said["presence_penalty"], said["frequency_penalty"]) == (1.0, 0.0, 0.0)


async def test_filters_come_after_temperature_and_penalties_before_and_over_everything(engine, fake, vocabulary, ask):
    fake.script([EOS])
    await ask(engine, [5, 6], Draw(top_p=0.9, top_k=5, min_p=0.1, repetition_penalty=1.1))
    said = fake.requests[0]
    assert said["samplers"] == ["penalties", "temperature", "top_k", "top_p", "min_p"]
    assert said["repeat_last_n"] == 4


async def test_the_seed_of_a_draw_is_kept_with_the_settings_that_the_engine_says_it_used(engine, fake, ask):
    fake.script([EOS], [EOS])
    named = json.loads((await ask(engine, [5], Draw(seed=11, choice=2))).generation.sampler_echo)
    drawn = json.loads((await ask(engine, [6])).generation.sampler_echo)
    assert (named["seed"], named["choice"], drawn["seed"]) == (11, 2, 7)
    assert named["settings"]["samplers"] == ["temperature"]


async def test_requests_of_one_draw_and_of_two_choices_have_different_seeds(engine, fake, vocabulary, ask):
    fake.script([*vocabulary.spell(LONG), EOS], [*vocabulary.spell(LONG), EOS])
    await ask(engine, [5], Draw(seed=1))
    await ask(engine, [5], Draw(seed=1, choice=1))
    seeds = [body["seed"] for body in fake.requests]
    assert len(set(seeds)) == len(seeds)


async def test_alternatives_are_given_when_they_are_asked_for(engine, fake, vocabulary, ask):
    fake.script([*vocabulary.spell("hi"), EOS])
    answered = await ask(engine, [5], Draw(top_logprobs=2))
    shown = [one for delta in answered.deltas for one in delta.logprobs]
    assert [one.token for one in shown] == [b"h", b"i", b"</s>"]
    assert [len(one.top) for one in shown] == [2, 2, 2]
    assert shown[0].logprob == pytest.approx(fake.logprob(vocabulary.spell("h")[0]))


@pytest.mark.parametrize(
    ("constraint", "field", "value"),
    [
        (SchemaConstraint('{"type":"object"}'), "json_schema", {"type": "object"}),
        (GrammarConstraint('root ::= "a"'), "grammar", 'root ::= "a"'),
    ],
)
async def test_a_constrained_answer_is_one_request_with_the_models_own_numbers(
    engine, fake, vocabulary, ask, constraint, field, value
):
    scripted = [*vocabulary.spell('{"a":"🙂 and a few more"}'), EOS]
    fake.script(scripted)
    answered = await ask(engine, [5], Draw(constraint=constraint, max_tokens=60))
    assert [body[field] for body in sampling(fake)] == [value]
    assert answered.ids == scripted
    assert answered.generation.logprobs_mode is LogprobsMode.RAW
    assert answered.logprobs == pytest.approx([fake.logprob(token) for token in scripted], abs=1e-5)
    assert answered.notes["logprob_filled"] == "n=3"


@pytest.mark.parametrize("constraint", [Free(), GrammarConstraint('root ::= "a"')])
async def test_a_prompt_that_is_too_long_is_the_callers_error_with_the_numbers(engine, ask, constraint):
    with pytest.raises(CallerError, match="4100 tokens and the engine's context holds 4096") as caught:
        await ask(engine, [5] * 4100, Draw(constraint=constraint))
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("fault", "code", "status", "says"),
    [
        ("RESET", "engine_unreachable", 502, "broke the connection"),
        ("HALF_BODY", "engine_unreachable", 502, "broke the connection"),
        ("NOT_JSON", "engine_broken", 502, "not JSON"),
        ("HTML", "engine_broken", 502, "not JSON"),
        ("ERROR_500", "engine_refused", 500, "the backend fell over"),
        ("LOADING_503", "engine_refused", 503, "Loading model"),
        ("MISSING_FIELD", "engine_broken", 502, "`tokens`"),
        ("WRONG_COUNT", "engine_broken", 502, "`tokens_predicted`"),
        ("TOO_MANY_TOKENS", "engine_broken", 502, "`tokens`"),
        ("NO_TOKENS", "engine_broken", 502, "`tokens`"),
        ("FOREIGN_ID", "engine_broken", 502, r"`tokens\[0\]`"),
        ("NAN_LITERAL", "engine_broken", 502, "not JSON"),
        ("PROBABILITY_ABOVE_ONE", "engine_broken", 502, "prob"),
        ("WRONG_PROMPT_LENGTH", "echo_mismatch", 502, "2 prompt tokens, and 1 were sent"),
        ("UNKNOWN_STOP", "engine_broken", 502, "`stop_type`"),
    ],
)
async def test_a_broken_answer_is_an_error_that_says_what_was_wrong(
    engine, fake, fakes, ask, fault, code, status, says
):
    # The retry that a reused connection is given must not hide the second fault.
    fake.faults.extend([fakes.Fault[fault]] * 2)
    with pytest.raises(EngineError, match=says) as caught:
        await ask(engine, [5])
    assert (caught.value.code, caught.value.status) == (code, status)
    assert caught.value.remedy


async def test_after_a_broken_answer_the_slot_is_free_again(engine, fake, fakes, vocabulary, ask):
    for _ in range(6):
        fake.faults.append(fakes.Fault.NO_TOKENS)
        with pytest.raises(EngineError):
            await ask(engine, [5])
    fake.script([*vocabulary.spell("ok"), EOS])
    assert (await ask(engine, [5])).ids == [*vocabulary.spell("ok"), EOS]


@pytest.mark.parametrize("fault", ["NO_PROBABILITIES", "FOREIGN_PROBABILITIES", "NULL_PROBABILITY"])
async def test_a_number_that_cannot_be_proved_is_unknown_and_ids_are_kept(engine, fake, fakes, vocabulary, ask, fault):
    scripted = [*vocabulary.spell("12345678"), EOS]
    fake.script(scripted)
    fake.faults.extend([fakes.Fault[fault]] * 3)
    answered = await ask(engine, [5], Draw(top_k=40))
    assert answered.ids == scripted
    assert answered.logprobs == [None] * len(scripted)
    assert answered.notes == {"logprob_missing": f"n={len(scripted)}"}


async def test_cancelling_aborts_upstream_and_frees_the_slot(engine, fake, fakes, vocabulary, ask):
    fake.faults.append(fakes.Fault.HANG)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await ask(engine, [5])
    await asyncio.sleep(0.05)
    assert fake.aborted == 1
    fake.script([EOS])
    assert (await ask(engine, [5])).ids == [EOS]


async def test_a_slow_first_token_is_waited_for(engine, fake, fakes, ask):
    fake.script([EOS])
    fake.faults.append(fakes.Fault.SLOW)
    assert (await ask(engine, [5])).ids == [EOS]


async def test_no_more_answers_are_sampled_at_once_than_there_are_slots(engine, fake, vocabulary, ask):
    fake.answer = lambda prompt: [*vocabulary.spell("x" * prompt[0]), EOS]
    answers = await asyncio.gather(*(ask(engine, [20 + at], Draw(affinity=str(at))) for at in range(6)))
    assert [len(answered.ids) for answered in answers] == [21 + at for at in range(6)]
    assert {body["id_slot"] for body in fake.requests} == {0, 1}


async def test_a_server_that_empties_idle_slots_is_left_to_choose_slots_itself(engine, fake, vocabulary, ask):
    fake.empties_idle_slots = True
    scripted = [*vocabulary.spell(LONG), EOS]
    fake.script(scripted)
    assert (await ask(engine, [5] * 100)).ids == scripted
    assert fake.requests[0]["id_slot"] == fake.requests[1]["id_slot"] == 0
    assert {body["id_slot"] for body in fake.requests[2:]} == {-1}


async def test_a_server_that_is_down_is_named_with_a_remedy():
    with pytest.raises(EngineError, match=r"No engine answers at http://127\.0\.0\.1:9") as caught:
        await LlamaServer.open("http://127.0.0.1:9")
    assert (caught.value.code, caught.value.status) == ("engine_unreachable", 503)


async def test_a_wrong_key_is_refused_by_name(fakes, vocabulary):
    guarded = fakes.LlamaFake(vocabulary.rows, api_key="right")
    async with guarded.serving() as url:
        with pytest.raises(EngineError, match="status 401: Invalid API Key") as caught:
            await LlamaServer.open(url, "wrong")
    assert "TURNSTILE_ENGINE_API_KEY" in caught.value.remedy
    assert "wrong" not in str(caught.value)


async def test_health_is_empty_when_it_answers_and_a_sentence_when_not(engine, fake):
    assert await engine.health() == ""


async def test_nothing_is_streamed_so_that_no_connection_is_left_half_closed_by_a_stream(engine, fake, ask, vocabulary):
    # The server closes connections behind streams that it announced to keep (138 of 300 failed when they were reused).
    fake.script([*vocabulary.spell(LONG), EOS])
    await ask(engine, [5, 6], Draw(stop_ids=frozenset({EOS})))
    assert len(fake.requests) > 2
    assert {body["stream"] for body in fake.requests} == {False}


async def test_the_sampler_settings_that_the_server_used_are_kept_with_the_seeds(engine, fake, ask, vocabulary):
    fake.script([*vocabulary.spell("ab"), EOS])
    answered = await ask(engine, [5, 6], Draw(temperature=0.5, top_k=3, seed=11, choice=1))
    echo = json.loads(answered.generation.sampler_echo)
    assert (echo["seed"], echo["choice"], echo["requests"], echo["sampled_again"]) == (11, 1, 2, 0)
    settings = echo["settings"]
    assert (settings["samplers"], settings["temperature"], settings["top_k"]) == (["temperature", "top_k"], 0.5, 3)
