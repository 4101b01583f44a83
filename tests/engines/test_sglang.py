from __future__ import annotations

import asyncio
import hashlib
import math

import msgspec
import pytest

from turnstile.conversation import Media, Message, ReplyDelta, Role, Text, ToolCallDelta, ToolMode
from turnstile.engines import EngineKind, SglangServer, connect
from turnstile.engines.base import Missing
from turnstile.errors import CallerError, EchoMismatch, EngineError
from turnstile.expansion import ImageRange
from turnstile.generation import Draw, Finish, GrammarConstraint, LogprobsMode, SchemaConstraint
from turnstile.tokens import IdRun, PolicySpan, join

EOS = 1
IMAGE = 0
PROMPT = [10, 11, 12]


def media(data):
    return Media(hashlib.sha256(data).hexdigest(), "image/png", data)


def ids_of(deltas):
    return join(delta.ids_S for delta in deltas).tolist()


@pytest.fixture
async def opened(sglang_fake, vocabulary):
    """Opens an engine on the fake after its settings were changed."""
    engines = []

    async def _opened(**changes):
        for name, value in changes.items():
            setattr(sglang_fake, name, value)
        server = await SglangServer.open(sglang_fake.url)
        engines.append(server.speaking(vocabulary, seeds=lambda: 7))
        return engines[-1]

    yield _opened
    for engine in engines:
        await engine.close()


@pytest.fixture(params=[False, True], ids=["cumulative", "incremental"])
async def either(request, opened):
    """An engine whose stream is cumulative, then one whose stream is incremental."""
    return await opened(incremental=request.param)


@pytest.fixture
def faulty(sglang_fake, sglang_fakes, ask, vocabulary):
    """Samples six tokens from an engine with one fault, and gives the error."""

    async def _faulty(engine, fault, kind=EngineError, draw=None):
        sglang_fake.script([*vocabulary.spell("abcde"), EOS])
        sglang_fake.faults.append(sglang_fakes.Fault[fault])
        with pytest.raises(kind) as caught:
            await ask(engine, PROMPT, draw or Draw(stop_ids=frozenset({EOS}), max_tokens=20))
        return caught.value

    return _faulty


async def test_an_address_is_recognised_as_sglangs(sglang_fake):
    server = await connect(sglang_fake.url, EngineKind.AUTO)
    assert isinstance(server, SglangServer)
    await server.close()


async def test_llamacpp_is_not_taken_for_sglang(fake):
    server = await connect(fake.url, EngineKind.AUTO)
    assert server.capabilities.engine == "llamacpp"
    await server.close()


async def test_another_server_at_the_address_of_an_sglang_is_refused(fake):
    with pytest.raises(EngineError, match="status 404") as caught:
        await SglangServer.open(fake.url)
    assert caught.value.code == "engine_refused"


async def test_a_model_that_generates_nothing_is_refused(sglang_fake):
    sglang_fake.info = {"is_generation": False}
    with pytest.raises(EngineError, match="`is_generation` is false"):
        await SglangServer.open(sglang_fake.url)


async def test_a_wrong_key_is_refused_with_what_to_do(sglang_fake):
    sglang_fake.api_key = "right"
    with pytest.raises(EngineError, match=r"Unauthorized\. Give Turnstile the engine's key") as caught:
        await SglangServer.open(sglang_fake.url, "wrong")
    assert (caught.value.code, caught.value.status) == ("engine_key_refused", 502)


async def test_ids_go_in_and_ids_numbers_and_the_stop_come_out(either, sglang_fake, ask, vocabulary):
    answer = [*vocabulary.spell("Hello"), EOS]
    sglang_fake.script(answer)
    answered = await ask(either, PROMPT, Draw(temperature=0.5, stop_ids=frozenset({EOS})))
    told = answered.generation
    assert sglang_fake.requests[0]["input_ids"] == PROMPT
    assert (answered.ids, told.finish, told.engine_finish_reason, told.stop_string) == (
        answer,
        Finish.STOP,
        "stop",
        "",
    )
    assert (told.usage.prompt_tokens, told.usage.completion_tokens, told.usage.cached_tokens) == (3, 6, 2)
    assert (told.logprobs_mode, told.logprobs_temperature) == (LogprobsMode.TEMPERATURE, 0.5)
    assert answered.logprobs == pytest.approx([sglang_fake.logprob(token, 0.5) for token in answer])
    assert told.prompt_echo_T == IdRun.of(PROMPT)
    assert told.engine_request_id == sglang_fake.requests[0]["rid"]
    assert (answered.notes, sglang_fake.aborts) == ({}, [])


async def test_each_token_is_emitted_as_it_comes_and_all_deltas_are_the_answer(either, sglang_fake, prompt, vocabulary):
    answer = [*vocabulary.spell("Hello"), EOS]
    sglang_fake.script(answer)
    sglang_fake.token_delay_s = 0.01
    deltas = []

    async def emit(delta):
        deltas.append(delta)

    told = await either.generate(prompt(PROMPT), Draw(stop_ids=frozenset({EOS}), max_tokens=20), emit)
    assert [delta.ids_S.tolist() for delta in deltas] == [[token] for token in answer]
    numbers = [delta.numbers for delta in deltas]
    assert [value for each in numbers for value in each.logprobs_S.tolist()] == told.logprobs_S.tolist()
    assert {(each.mode, each.temperature) for each in numbers} == {(LogprobsMode.TEMPERATURE, 1.0)}


async def test_the_first_token_is_told_while_the_engine_still_samples(sglang, sglang_fake, prompt, vocabulary):
    sglang_fake.script([*vocabulary.spell("Hello"), EOS])
    first = asyncio.Event()

    async def emit(_delta):
        sglang_fake.held = True
        first.set()

    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sglang.generate(prompt(PROMPT), Draw(), emit))
        await asyncio.wait_for(first.wait(), 5)
        assert not sampling.done()
        sglang_fake.held = False
    assert sampling.result().finish is Finish.STOP


async def test_one_connection_serves_many_answers(sglang, sglang_fake, ask, vocabulary):
    sglang_fake.connections.clear()
    for text in ("one", "two", "three"):
        sglang_fake.script([*vocabulary.spell(text), EOS])
        await ask(sglang, PROMPT, Draw(stop_ids=frozenset({EOS})))
    assert len(sglang_fake.connections) == 1


async def test_every_parameter_is_said_outright(sglang, sglang_fake, ask):
    draw = Draw(
        temperature=0.7,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
        logit_bias=((5, -100.0),),
        seed=11,
        max_tokens=4,
        stop=("x",),
        stop_ids=frozenset({EOS, 0}),
        choice=2,
    )
    await ask(sglang, PROMPT, draw)
    body = sglang_fake.requests[0]
    assert body["sampling_params"] == {
        "max_new_tokens": 4,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 40,
        "min_p": 0.05,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.1,
        "repetition_penalty": 1.1,
        "logit_bias": {"5": -100.0},
        "stop": ["x"],
        "stop_token_ids": [0, 1],
        "sampling_seed": 13,
        "stream_interval": 1,
        "json_schema": None,
        "ebnf": None,
        "regex": None,
        "structural_tag": None,
        "stop_regex": None,
        "custom_params": None,
        "min_new_tokens": 0,
        "n": 1,
        "ignore_eos": False,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "no_stop_trim": True,
    }
    del body["sampling_params"]
    rid = body.pop("rid")
    assert len(rid) == 32
    assert body == {
        "input_ids": PROMPT,
        "top_logprobs_num": 0,
        "stream": True,
        "return_logprob": True,
        "logprob_start_len": -1,
        "return_prompt_token_ids": True,
    }


@pytest.mark.parametrize(
    ("constraint", "field", "value"),
    [
        (SchemaConstraint('{"type":"object"}'), "json_schema", '{"type":"object"}'),
        (GrammarConstraint('root ::= "a"'), "ebnf", 'root ::= "a"'),
    ],
)
async def test_a_constraint_is_passed_on_and_the_numbers_are_those_under_it(
    sglang, sglang_fake, ask, constraint, field, value
):
    answered = await ask(sglang, PROMPT, Draw(constraint=constraint, stop_ids=frozenset({EOS})))
    assert sglang_fake.requests[0]["sampling_params"][field] == value
    assert answered.generation.logprobs_mode is LogprobsMode.PROCESSED
    assert answered.notes == {"constrained": "the recorded numbers are those under the grammar"}


@pytest.mark.parametrize("original", [False, True], ids=["temperature", "raw"])
async def test_what_the_numbers_mean_is_measured(opened, ask, original):
    engine = await opened(original_logprobs=original)
    told = (await ask(engine, PROMPT, Draw(temperature=0.5))).generation
    expected = (LogprobsMode.RAW, 1.0) if original else (LogprobsMode.TEMPERATURE, 0.5)
    assert (told.logprobs_mode, told.logprobs_temperature) == expected


async def test_numbers_that_cannot_be_measured_are_unknown(opened, ask):
    engine = await opened(logit=lambda token: 1e-4 * (token % 3))
    told = (await ask(engine, PROMPT, Draw(temperature=0.5))).generation
    assert (told.logprobs_mode, told.logprobs_temperature) == (LogprobsMode.UNKNOWN, None)
    assert "meaning of log-probabilities" in [each.what for each in engine.capabilities.missing]


async def test_greedy_numbers_are_the_models_own(sglang, sglang_fake, ask):
    answered = await ask(sglang, PROMPT, Draw(temperature=0.0, stop_ids=frozenset({EOS})))
    assert (answered.generation.logprobs_mode, answered.generation.logprobs_temperature) == (LogprobsMode.RAW, 1.0)
    assert answered.logprobs == pytest.approx([sglang_fake.logprob(EOS)])


async def test_a_stop_string_ends_the_answer_with_the_token_that_completes_it(either, sglang_fake, ask, vocabulary):
    sglang_fake.script(vocabulary.spell("say ha! more"))
    answered = await ask(either, PROMPT, Draw(stop=("zz", "ha!"), stop_ids=frozenset({EOS})))
    assert (answered.ids, answered.generation.finish, answered.generation.stop_string) == (
        vocabulary.spell("say ha!"),
        Finish.STOP,
        "ha!",
    )
    assert sglang_fake.aborts == []


async def test_a_stop_string_that_the_server_was_not_told_of_is_found_and_the_rest_aborted(
    opened, sglang_fake, ask, vocabulary
):
    engine = await opened(settings={"skip_tokenizer_init": True})
    sglang_fake.script(vocabulary.spell("say ha! more and more"))
    answered = await ask(engine, PROMPT, Draw(stop=("ha!",)))
    assert sglang_fake.requests[0]["sampling_params"]["stop"] is None
    assert (answered.ids, answered.generation.stop_string) == (vocabulary.spell("say ha!"), "ha!")
    assert sglang_fake.aborts == [sglang_fake.requests[0]["rid"]]


async def test_a_limit_ends_the_answer_as_length(either, sglang_fake, ask, vocabulary):
    sglang_fake.script(vocabulary.spell("abcdef"))
    answered = await ask(either, PROMPT, Draw(max_tokens=4))
    assert (answered.ids, answered.generation.finish) == (vocabulary.spell("abcd"), Finish.LENGTH)


async def test_the_end_of_the_context_ends_the_answer_as_length(opened, sglang_fake, ask, vocabulary):
    engine = await opened(context=6)
    sglang_fake.script(vocabulary.spell("abcdef"))
    answered = await ask(engine, PROMPT)
    assert (answered.ids, answered.generation.finish) == (vocabulary.spell("abc"), Finish.LENGTH)


@pytest.mark.parametrize(("ids", "max_tokens"), [([5] * 50, None), ([5] * 10, 45)], ids=["prompt", "prompt and answer"])
async def test_what_does_not_fit_the_context_is_the_callers(opened, ask, ids, max_tokens):
    engine = await opened(context=50)
    with pytest.raises(CallerError, match="context length") as caught:
        await ask(engine, ids, Draw(max_tokens=max_tokens))
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


async def test_alternatives_are_told_beside_each_token(either, sglang_fake, ask, vocabulary):
    sglang_fake.script([*vocabulary.spell("ab"), EOS])
    answered = await ask(either, PROMPT, Draw(top_logprobs=2, stop_ids=frozenset({EOS})))
    shown = [each for delta in answered.deltas for each in delta.logprobs]
    assert [each.token for each in shown] == [b"a", b"b", b"</s>"]
    best = [(vocabulary.token_bytes(one), pytest.approx(sglang_fake.logprob(one))) for one in (0, 13)]
    assert all(list(each.top) == best for each in shown)


async def test_a_long_prompt_and_a_long_answer_come_in_larger_pieces(opened, sglang_fake, ask):
    cumulative = await opened(context=1 << 20)
    await ask(cumulative, [5] * 10, Draw(max_tokens=100_000))
    incremental = await opened(incremental=True)
    await ask(incremental, [5] * 10, Draw(max_tokens=100_000))
    await ask(incremental, [5] * 20_000, Draw(max_tokens=100_000))
    intervals = [body["sampling_params"]["stream_interval"] for body in sglang_fake.requests]
    assert intervals == [390, 1, 20]


async def test_an_answer_in_larger_pieces_is_whole(either, sglang_fake, ask, vocabulary):
    sglang_fake.context = 10_000
    sglang_fake.script([*vocabulary.spell("abcdefgh"), EOS])
    answered = await ask(either, PROMPT * 1500, Draw(stop_ids=frozenset({EOS}), max_tokens=20))
    assert [delta.ids_S.tolist() for delta in answered.deltas] == [
        vocabulary.spell("a"),
        vocabulary.spell("bcde"),
        [*vocabulary.spell("fgh"), EOS],
    ]
    assert len(answered.logprobs) == 9


async def test_the_weights_that_sampled_each_id_are_told(either, sglang_fake, ask, vocabulary):
    sglang_fake.script([*vocabulary.spell("abcd"), EOS])
    sglang_fake.updates = {3: "v8"}
    answered = await ask(either, PROMPT, Draw(stop_ids=frozenset({EOS})))
    assert answered.generation.policy_spans == (PolicySpan("default", 0, 3), PolicySpan("v8", 3, 5))


async def test_spans_of_weights_end_where_the_answer_is_cut(opened, sglang_fake, ask, vocabulary):
    engine = await opened(settings={"skip_tokenizer_init": True}, context=10_000)
    sglang_fake.script([*vocabulary.spell("ab"), EOS])
    sglang_fake.updates = {2: "v8"}
    answered = await ask(engine, PROMPT * 2000, Draw(stop=("b",), stop_ids=frozenset({EOS}), max_tokens=20))
    assert answered.ids == vocabulary.spell("ab")
    assert answered.generation.policy_spans == (PolicySpan("default", 0, 2),)
    assert answered.notes == {"trimmed_past_stop": "n=1"}


@pytest.mark.parametrize("fault", ["UPDATE", "UPDATE_IN_QUEUE", "UPDATE_JOINED"])
async def test_an_answer_that_a_weight_update_aborted_keeps_what_was_sampled(
    either, sglang_fake, sglang_fakes, ask, vocabulary, fault
):
    sglang_fake.script([*vocabulary.spell("abcde"), EOS])
    sglang_fake.faults.append(sglang_fakes.Fault[fault])
    answered = await ask(either, PROMPT, Draw(temperature=0.5))
    sampled = vocabulary.spell("abc" if fault == "UPDATE" else "ab")
    assert (answered.ids, answered.generation.finish) == (sampled, Finish.ABORT)
    assert ids_of(answered.deltas) == sampled
    assert answered.logprobs == pytest.approx([sglang_fake.logprob(token, 0.5) for token in sampled])
    assert answered.generation.usage.prompt_tokens == 3
    assert answered.generation.policy_spans == (PolicySpan("default", 0, len(sampled)),)
    assert sglang_fake.aborts == []


async def test_an_image_goes_as_its_bytes_and_the_echo_is_collapsed(either, sglang_fake, prompt, ask):
    shown = msgspec.structs.replace(
        prompt([10, IMAGE, 11, IMAGE, 12]), media=(media(b"one"), media(b"second")), placeholder_id=IMAGE
    )

    async def emit(_delta):
        pass

    told = await either.generate(shown, Draw(stop_ids=frozenset({EOS})), emit)
    body = sglang_fake.requests[0]
    assert body["input_ids"] == [10, IMAGE, 11, IMAGE, 12]
    assert body["image_data"] == ["data:image/png;base64,b25l", "data:image/png;base64,c2Vjb25k"]
    # The fake gives 2 + len(bytes) % 5 tokens to an image: 5 and 3.
    assert told.expanded.ids_T.tolist() == [10, *[IMAGE] * 5, 11, *[IMAGE] * 3, 12]
    assert told.expanded.ranges == (ImageRange(1, 5, 5), ImageRange(7, 3, 3))
    assert told.prompt_echo_T == shown.ids_T
    assert told.usage.prompt_tokens == 11


@pytest.mark.parametrize(
    ("ids", "images", "told"),
    [
        ([10, IMAGE, 11, IMAGE, 12], 1, "it put in 2 images, and 1 were sent"),
        ([10, 11, 12], 1, "it put in 0 images, and 1 were sent"),
        ([10, IMAGE, IMAGE, 12], 2, "it put in 1 images, and 2 were sent"),
        ([10, IMAGE, 12], 2, "it put in 1 images, and 2 were sent"),
    ],
)
async def test_images_and_placeholders_that_do_not_match_are_found_before_a_token_is_told(
    sglang, sglang_fake, prompt, ids, images, told
):
    shown = msgspec.structs.replace(
        prompt(ids), media=tuple(media(b"image") for _ in range(images)), placeholder_id=IMAGE
    )
    emitted = []

    async def emit(delta):
        emitted.append(delta)

    with pytest.raises(EchoMismatch, match=told):
        await sglang.generate(shown, Draw(), emit)
    assert emitted == []


async def test_a_prompt_that_was_tokenized_again_is_found_and_aborted(either, sglang_fake, faulty):
    error = await faulty(either, "RETOKENIZED", EchoMismatch)
    assert "from index 1 on it ran other ids than the 3 that were sent" in str(error)
    assert sglang_fake.aborts == [sglang_fake.requests[0]["rid"]]


async def test_a_prompt_that_was_cut_in_the_scheduler_is_found(sglang, faulty):
    error = await faulty(sglang, "TRUNCATED", EchoMismatch)
    assert "it ran 2 prompt ids, and says which 3" in str(error)


async def test_an_image_without_an_echo_is_refused(sglang, sglang_fake, sglang_fakes, prompt):
    shown = msgspec.structs.replace(prompt([10, IMAGE]), media=(media(b"image"),), placeholder_id=IMAGE)
    sglang_fake.faults.append(sglang_fakes.Fault.NO_ECHO)

    async def emit(_delta):
        pass

    with pytest.raises(EngineError, match="nothing shows where the images were put"):
        await sglang.generate(shown, Draw(), emit)


async def test_a_prompt_without_an_echo_is_checked_by_its_length_and_noted(sglang, sglang_fake, sglang_fakes, ask):
    sglang_fake.faults.append(sglang_fakes.Fault.NO_ECHO)
    answered = await ask(sglang, PROMPT)
    assert answered.generation.prompt_echo_T is None
    assert answered.notes == {"echo_unverified": "only the number of prompt ids was told"}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("WRONG_COUNT", "neither a part nor the whole"),
        ("WRONG_LENGTH", "`output_token_logprobs_length` is 7 and 6 ids came"),
        ("SHORT_LOGPROBS", "1 log-probabilities came for 2 `output_ids`"),
        ("FOREIGN_LOGPROBS", "`output_token_logprobs` is of id 100 where `output_ids` has 99"),
        ("POSITIVE", "`output_token_logprobs` has 0.5"),
        ("NAN_HAPPENED", "an id outside its vocabulary"),
        ("STOP_ID_LOST", "`finish_reason` is"),
        ("FOREIGN_STOP", "`finish_reason` is"),
        ("UNKNOWN_FINISH", '`finish_reason` is {"type":"preempted"'),
        ("GAP_IN_SPANS", "`weight_versions` has [1, 6) behind 0 ids"),
        ("CHANGED_IDS", "neither a part nor the whole"),
        ("NOT_JSON", "it is not JSON"),
        ("HTML", "it is not JSON"),
        ("NO_STREAM", "a stream was asked for and one answer came"),
        ("CUT_CLEAN", "the stream ended behind 2 ids without a `finish_reason`"),
    ],
)
async def test_an_answer_that_cannot_be_true_is_refused(sglang, faulty, fault, told):
    error = await faulty(sglang, fault)
    assert told in str(error)
    assert error.code == "engine_broken"


async def test_a_stream_that_is_cut_off_is_a_failure(sglang, faulty):
    error = await faulty(sglang, "CUT")
    assert (error.code, error.status) == ("engine_unreachable", 502)


async def test_an_engine_that_hangs_up_twice_is_a_failure(sglang, sglang_fakes, sglang_fake, faulty):
    sglang_fake.faults.append(sglang_fakes.Fault.RESET)
    error = await faulty(sglang, "RESET")
    assert error.code == "engine_unreachable"


@pytest.mark.parametrize(
    ("fault", "status", "told"),
    [
        ("ERROR_500", 500, "Internal Server Error"),
        ("BUSY", 503, "The request queue is full."),
        ("ERROR_EVENT", 500, "the backend fell over"),
    ],
)
async def test_an_engines_refusal_is_passed_on_with_its_status(sglang, faulty, fault, status, told):
    error = await faulty(sglang, fault)
    assert (error.code, error.status) == ("engine_refused", status)
    assert told in str(error)


@pytest.mark.parametrize("fault", ["NOT_FINITE", "CLAMPED", "NO_LOGPROBS"])
async def test_a_number_that_is_none_is_unknown(either, sglang_fake, sglang_fakes, ask, vocabulary, fault):
    sglang_fake.script([*vocabulary.spell("a"), EOS])
    sglang_fake.faults.append(sglang_fakes.Fault[fault])
    answered = await ask(either, PROMPT, Draw(stop_ids=frozenset({EOS})))
    assert answered.logprobs == [None, None]
    assert answered.notes == {"logprob_missing": "n=2"}


async def test_an_answer_is_read_by_the_servers_parsers_where_that_is_asked(opened, sglang_fake, prompt, vocabulary):
    engine = await opened(info={"tool_call_parser": "fake", "reasoning_parser": "fake"})
    sglang_fake.script([*vocabulary.spell("[I ask.]Well: {look}!"), EOS])
    asked = prompt(PROMPT)
    head = msgspec.structs.replace(asked.head, tools=('{"type":"function","function":{"name":"look"}}',))
    asked = msgspec.structs.replace(asked, head=head, read_with=ToolMode.AUTO)

    async def emit(_delta):
        pass

    told = await engine.generate(asked, Draw(stop_ids=frozenset({EOS})), emit)
    calls = (ToolCallDelta(0, name="look", arguments="{}"),)
    assert told.said == ReplyDelta(reasoning="I ask.", content="Well: !", calls=calls)


async def test_leaving_aborts_the_request_by_its_id_and_closes_the_connection(sglang, sglang_fake, prompt, vocabulary):
    sglang_fake.script(vocabulary.spell("abcdefgh"))
    sglang_fake.token_delay_s = 0.05
    begun = asyncio.Event()

    async def emit(_delta):
        begun.set()

    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(sglang.generate(prompt(PROMPT), Draw(), emit))
        await asyncio.wait_for(begun.wait(), 5)
        sampling.cancel()
    assert sampling.cancelled()
    assert sglang_fake.aborts == [sglang_fake.requests[0]["rid"]]
    for _ in range(100):
        if sglang_fake.gone:
            break
        await asyncio.sleep(0.02)
    assert sglang_fake.gone == 1


async def test_leaving_does_not_fail_where_aborting_needs_another_key(opened, sglang_fake, prompt, vocabulary):
    engine = await opened(admin_key="admin")
    sglang_fake.script(vocabulary.spell("abcdefgh"))
    sglang_fake.token_delay_s = 0.05
    begun = asyncio.Event()

    async def emit(_delta):
        begun.set()

    async with asyncio.TaskGroup() as group:
        sampling = group.create_task(engine.generate(prompt(PROMPT), Draw(), emit))
        await asyncio.wait_for(begun.wait(), 5)
        sampling.cancel()
    assert sampling.cancelled()
    assert sglang_fake.aborts == []


async def test_ids_of_requests_are_all_equally_long(sglang, sglang_fake, ask):
    for _ in range(5):
        await ask(sglang, PROMPT)
    rids = [body["rid"] for body in sglang_fake.requests]
    assert (len(set(rids)), {len(rid) for rid in rids}) == (5, {32})


async def test_text_is_tokenized_by_the_server(opened, sglang_fake, vocabulary):
    engine = await opened(encode=vocabulary.spell)
    server = SglangServer(engine._server.wire, engine._server.found)
    assert await server.tokenize("hé") == IdRun.of(vocabulary.spell("hé"))


async def test_a_server_without_that_route_cannot_say_how_it_tokenizes(sglang):
    assert await sglang._server.tokenize("hi") is None


async def test_a_conversation_is_rendered_by_the_servers_own_template(opened, vocabulary):
    engine = await opened(encode=vocabulary.spell)
    talk = (Message(Role.SYSTEM, (Text("Be brief."),)), Message(Role.USER, (Text("Hi"),)))
    rendered = "system: Be brief.\nuser: Hi\nassistant:"
    assert await engine._server.chat_ids(talk) == IdRun.of(vocabulary.spell(rendered))


async def test_a_server_without_that_route_cannot_say_how_it_renders(sglang):
    assert await sglang._server.chat_ids((Message(Role.USER, (Text("Hi"),)),)) is None


async def test_health_is_asked(sglang):
    assert await sglang.health() == ""


async def test_the_whole_table_of_a_server_with_every_flag_is_empty(opened):
    engine = await opened(
        incremental=True, settings={"enable_deterministic_inference": True}, info={"tool_call_parser": "qwen"}
    )
    said = engine.capabilities
    assert said.missing == ()
    assert (said.engine, said.version, said.models, said.context_length, said.concurrency) == (
        "sglang",
        "0.5.23",
        ("fake",),
        4096,
        48,
    )
    assert (said.echoes_prompt_ids, said.images) == ("ids", "collapsed")
    assert said.constraints == {"schema", "grammar"}
    assert "seed" in said.honours


async def test_another_version_is_named_as_one_whose_answers_nobody_read(opened):
    engine = await opened(
        version="0.6.0",
        incremental=True,
        settings={"enable_deterministic_inference": True},
        info={"tool_call_parser": "qwen"},
    )
    assert engine.capabilities.missing == (
        Missing(
            "known version (0.6.0)",
            "What it answers was read in the source of 0.5.23: another form is refused, not guessed at",
            "Serve with sglang 0.5.23",
        ),
    )


async def test_an_earlier_version_is_recognised_by_its_old_names_and_named(sglang_fakes, vocabulary):
    fake = sglang_fakes.SglangFake(vocabulary.rows, eos=frozenset({EOS}), version="0.4.6", has_old_names=True)
    async with fake.serving() as url:
        server = await connect(url, EngineKind.AUTO)
        assert isinstance(server, SglangServer)
        assert server.capabilities.missing[0].what == "known version (0.4.6)"
        await server.close()


async def test_a_server_that_leaves_stop_ids_out_is_refused_at_start(sglang_fake, vocabulary):
    sglang_fake.trims_stop_ids = True
    with pytest.raises(EngineError, match="ended an answer and is not in its `output_ids`"):
        await SglangServer.open(sglang_fake.url)


def test_the_fakes_numbers_are_a_distribution(sglang_fakes, vocabulary):
    fake = sglang_fakes.SglangFake(vocabulary.rows)
    for temperature in (1.0, 0.3):
        total = math.fsum(math.exp(fake.logprob(one, temperature)) for one in range(vocabulary.size))
        assert total == pytest.approx(1.0)
