"""vLLM's adapter against a server that is only wire."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from turnstile.conversation import Media, Message, Role, Text, TokenLogprob, ToolCallDelta, ToolMode, Usage
from turnstile.engines import EngineKind, VllmServer, connect
from turnstile.errors import CallerError, EchoMismatch, EngineError
from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.generation import Draw, Finish, GrammarConstraint, LogprobsMode
from turnstile.tokens import IdRun, LogprobRun, PolicySpan

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/inference/v1/generate"
STOP = frozenset({1})


@pytest.fixture
async def opened(vllm_fake, vocabulary):
    """Open the fake as it is now set; its engine."""
    engines = []

    async def _opened():
        server = await VllmServer.open(vllm_fake.url)
        vllm_fake.requests.clear()
        engines.append(server.speaking(vocabulary, seeds=lambda: 7))
        return engines[-1]

    yield _opened
    for engine in engines:
        await engine.close()


@pytest.fixture
def sample(prompt):
    """Sample once from a changed prompt: the generation and all that was emitted."""

    async def _sample(engine, ids, draw=None, **fields):
        deltas = []

        async def emit(delta):
            deltas.append(delta)

        changed = msgspec.structs.replace(prompt(ids), **fields)
        return await engine.generate(changed, draw or Draw(stop_ids=STOP), emit), deltas

    return _sample


async def test_each_id_is_emitted_as_it_comes_with_the_number_that_is_recorded(vllm, vllm_fake, vocabulary, ask):
    ids = [*vocabulary.spell("hi"), 1]
    vllm_fake.script(ids)
    answered = await ask(vllm, [2, 3], Draw(temperature=0.5, stop_ids=STOP, seed=3))
    numbers = LogprobRun.of([vllm_fake.logprob(each, 0.5) for each in ids])
    assert [delta.ids_S.tolist() for delta in answered.deltas] == [[each] for each in ids]
    assert [delta.numbers.logprobs_S for delta in answered.deltas] == [numbers.slice(at, at + 1) for at in range(3)]
    generation = answered.generation
    assert (generation.ids_S, generation.logprobs_S) == (IdRun.of(ids), numbers)
    assert (generation.finish, generation.engine_finish_reason) == (Finish.STOP, "stop")
    assert (generation.logprobs_mode, generation.logprobs_temperature) == (LogprobsMode.PROCESSED, 0.5)
    assert generation.usage == Usage(prompt_tokens=2, completion_tokens=3)
    assert generation.prompt_echo_T == IdRun.of([2, 3])
    assert generation.policy_spans == (PolicySpan("default", 0, 3),)
    assert generation.engine_request_id == "generate-tokens-a968dba3539be720"


async def test_generate_is_used_where_it_is_open(vllm, vllm_fake, ask):
    await ask(vllm, [2, 3], Draw(max_tokens=1))
    assert [path for path, _ in vllm_fake.requests] == [GENERATE]


async def test_without_scale_out_completions_gives_the_same(vllm_fakes, vocabulary, ask):
    fake = vllm_fakes.VllmFake(vocabulary.rows, frozenset({0, 1}), frozenset({1}), scale_out=False, dev_mode=False)
    async with fake.serving() as url:
        engine = (await VllmServer.open(url)).speaking(vocabulary)
        fake.requests.clear()
        fake.script([5, 6, 1])
        answered = await ask(engine, [2, 3], Draw(temperature=0.5, stop_ids=STOP, top_logprobs=2))
        assert fake.requests[0][0] == COMPLETIONS
        assert answered.ids == [5, 6, 1]
        assert answered.logprobs == pytest.approx([fake.logprob(each, 0.5) for each in (5, 6, 1)])
        shown = [each.token for delta in answered.deltas for each in delta.logprobs]
        assert shown == [vocabulary.rows[5], vocabulary.rows[6], b"</s>"]
        assert answered.generation.policy_spans == ()
        assert await engine.policy_label() == ""
        await engine.close()


async def test_every_sampling_field_is_sent_so_that_no_server_default_leaks_in(vllm, vllm_fake, ask):
    await ask(vllm, [2, 3], Draw(max_tokens=1))
    ((_, body),) = vllm_fake.requests
    assert body["sampling_params"] == {
        "temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "repetition_penalty": 1.0, "seed": 7, "stop": [], "stop_token_ids": [], "max_tokens": 1, "logprobs": 0,
        "detokenize": False,
    }  # fmt: skip


async def test_a_whole_draw_reaches_the_server(vllm, vllm_fake, ask):
    draw = Draw(
        temperature=0.7, top_p=0.9, top_k=40, min_p=0.05, presence_penalty=0.5, frequency_penalty=0.25,
        repetition_penalty=1.1, logit_bias=((5, 2.0),), seed=11, max_tokens=2, stop=("END",),
        stop_ids=frozenset({9, 1}), top_logprobs=3, choice=2,
    )  # fmt: skip
    await ask(vllm, [2, 3], draw)
    ((_, body),) = vllm_fake.requests
    assert body["sampling_params"] == {
        "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "presence_penalty": 0.5,
        "frequency_penalty": 0.25, "repetition_penalty": 1.1, "seed": 13, "stop": ["END"], "stop_token_ids": [1, 9],
        "max_tokens": 2, "logit_bias": {"5": 2.0}, "logprobs": 3, "detokenize": True,
    }  # fmt: skip


async def test_alternatives_are_shown_as_bytes(vllm, vllm_fake, vocabulary, ask):
    vllm_fake.script([5, 1])
    answered = await ask(vllm, [2, 3], Draw(stop_ids=STOP, top_logprobs=2))
    first = answered.deltas[0].logprobs[0]
    best = max(range(vocabulary.size), key=vllm_fake.logit)
    assert first.token == vocabulary.rows[5]
    assert first.top[0] == (vocabulary.rows[best], pytest.approx(vllm_fake.logprob(best)))
    assert isinstance(first, TokenLogprob)


async def test_case_d1_what_lies_behind_a_stop_string_is_dropped_from_all_arrays(vllm, vllm_fake, vllm_fakes, ask):
    vllm_fake.script([259, 259, 259, 259])
    vllm_fake.token_delay_s = 0.0
    answered = await ask(vllm, [2, 3], Draw(stop=("ha ha",), stop_ids=STOP))
    assert answered.ids == [259, 259]
    assert len(answered.logprobs) == 2
    assert answered.generation.stop_string == "ha ha"
    assert answered.generation.usage.completion_tokens == 2


async def test_case_a3_a_door_that_ran_other_ids_is_found_before_one_of_its_ids_leaves(
    vllm, vllm_fake, vllm_fakes, ask
):
    vllm_fake.faults.append(vllm_fakes.Fault.OTHER_PROMPT)
    with pytest.raises(EchoMismatch, match="echo_mismatch at=0"):
        await ask(vllm, [9, 3, 4])


async def test_case_a1_ids_that_a_parser_swallowed_are_missed(vllm, vllm_fake, vllm_fakes, sample, vocabulary):
    vllm_fake.script([*vocabulary.spell("<tool_call>"), 1])
    vllm_fake.faults.append(vllm_fakes.Fault.LOST_IDS)
    generation, _ = await sample(vllm, [2, 3], read_with=ToolMode.AUTO)
    assert len(generation.ids_S) < generation.usage.completion_tokens == 12


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("RESET", "engine_unreachable"), ("CUT", "engine_unreachable"), ("CUT_CLEAN", "engine_unreachable"),
        ("NO_FINISH", "engine_unreachable"), ("ERROR_500", "engine_refused"), ("BUSY_503", "engine_refused"),
        ("ERROR_EVENT", "engine_refused"), ("HTML", "engine_broken"), ("NOT_JSON", "engine_broken"),
        ("FOREIGN_ID", "engine_broken"), ("POSITIVE", "engine_broken"), ("NO_COUNT", "engine_broken"),
        ("NAN_LITERAL", "engine_broken"), ("NO_STREAM", "engine_broken"),
    ],
)  # fmt: skip
async def test_an_answer_that_cannot_be_true_or_whole_is_an_error(vllm, vllm_fake, vllm_fakes, ask, fault, code):
    vllm_fake.script([5, 6, 7, 8, 1], [5, 6, 7, 8, 1])
    fault = getattr(vllm_fakes.Fault, fault)
    # A reset before the first byte is taken for an idle connection that was closed, and tried once more.
    vllm_fake.faults.extend([fault] * (2 if fault is vllm_fakes.Fault.RESET else 1))
    with pytest.raises(EngineError) as raised:
        await ask(vllm, [2, 3], Draw(stop_ids=STOP))
    assert raised.value.code == code


@pytest.mark.parametrize("fault", ["CLAMPED", "NULL_LOGPROBS"])
async def test_a_number_that_is_not_finite_is_unknown(vllm, vllm_fake, vllm_fakes, ask, fault):
    vllm_fake.script([5, 1])
    vllm_fake.faults.append(getattr(vllm_fakes.Fault, fault))
    answered = await ask(vllm, [2, 3], Draw(stop_ids=STOP))
    assert answered.logprobs == [None, None]
    assert answered.notes["logprob_missing"] == "n=2"


@pytest.mark.parametrize("fault", ["NO_LOGPROBS", "SHORT_LOGPROBS", "FOREIGN_LOGPROBS"])
async def test_numbers_that_do_not_belong_to_the_ids_are_no_numbers(vllm, vllm_fake, vllm_fakes, sample, fault):
    vllm_fake.script([5, 1])
    vllm_fake.faults.append(getattr(vllm_fakes.Fault, fault))
    generation, deltas = await sample(vllm, [2, 3])
    assert generation.ids_S.tolist() == [5, 1]
    assert generation.logprobs_S is None
    assert deltas[-1].numbers is None


@pytest.mark.parametrize(("fault", "finish"), [("ABORTED", Finish.ABORT), ("UNKNOWN_FINISH", Finish.ERROR)])
async def test_an_answer_that_the_engine_gave_up_says_so(vllm, vllm_fake, vllm_fakes, sample, fault, finish):
    vllm_fake.script([5, 6, 1])
    vllm_fake.faults.append(getattr(vllm_fakes.Fault, fault))
    generation, _ = await sample(vllm, [2, 3])
    assert (generation.finish, generation.ids_S.tolist()) == (finish, [5, 6])


async def test_a_prompt_that_is_too_long_is_the_caller_s_to_shorten(vllm, vllm_fake, ask):
    with pytest.raises(CallerError) as refused:
        await ask(vllm, [2] * 4097)
    assert refused.value.code == "context_length_exceeded"


async def test_case_l3_weights_that_change_in_mid_answer_are_spans(vllm, vllm_fake, sample):
    vllm_fake.script([5, 6, 7, 1])
    vllm_fake.updates = {2: "v7"}
    generation, _ = await sample(vllm, [2, 3])
    assert generation.policy_spans == (PolicySpan("default", 0, 2), PolicySpan("v7", 2, 4))
    assert await vllm.policy_label() == "v7"


async def test_leaving_aborts_the_sampling(vllm, vllm_fake, ask):
    vllm_fake.held = True
    task = asyncio.create_task(ask(vllm, [2, 3]))  # noqa: TID251
    while not vllm_fake.running:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    vllm_fake.held = False
    for _ in range(200):
        if vllm_fake.gone:
            break
        await asyncio.sleep(0.01)
    assert vllm_fake.gone == 1


async def test_a_connection_serves_one_call_after_the_other(vllm, vllm_fake, ask):
    for _ in range(5):
        await ask(vllm, [2, 3], Draw(max_tokens=1))
    assert len(vllm_fake.connections) == 1


CALL = 'Look.<tool_call>{"name": "go", "arguments": {}}</tool_call>'


@pytest.mark.parametrize("takes_ids_in_chat", [True, False])
async def test_the_engine_s_parser_reads_what_turnstile_cannot(
    vllm_fake, opened, sample, vocabulary, takes_ids_in_chat
):
    vllm_fake.takes_ids_in_chat = takes_ids_in_chat
    engine = await opened()
    assert engine.capabilities.reads_answers
    vllm_fake.script([*vocabulary.spell(CALL), 1])
    generation, deltas = await sample(engine, [2, 3], read_with=ToolMode.AUTO)
    assert [path for path, _ in vllm_fake.requests] == [CHAT if takes_ids_in_chat else GENERATE]
    assert generation.ids_S.tolist() == [*vocabulary.spell(CALL), 1]
    said = [delta.said for delta in deltas if delta.said is not None]
    assert "".join(each.content for each in said) == "Look."
    assert [call for each in said for call in each.calls] == [
        ToolCallDelta(0, "chatcmpl-tool-0000000000000000", "go", "{}")
    ]


async def test_chat_is_asked_with_the_tools_and_not_with_the_messages(vllm, vllm_fake, sample, prompt):
    tool = '{"type":"function","function":{"name":"go"}}'
    head = msgspec.structs.replace(prompt([2]).head, tools=(tool,), template_kwargs='{"enable_thinking":false}')
    await sample(vllm, [2, 3], read_with=ToolMode.AUTO, head=head)
    ((_, body),) = vllm_fake.requests
    assert body["kv_transfer_params"] == {"prompt_token_ids": [2, 3]}
    assert body["tools"] == [msgspec.json.decode(tool)]
    assert (body["tool_choice"], body["chat_template_kwargs"]) == ("auto", {"enable_thinking": False})
    assert body["messages"] == [{"role": "user", "content": "-"}]


async def test_no_id_of_chat_is_believed_without_an_echo(vllm, vllm_fake, vllm_fakes, sample):
    vllm_fake.faults.append(vllm_fakes.Fault.NO_ECHO)
    with pytest.raises(EchoMismatch, match="does not say which prompt ids"):
        await sample(vllm, [2, 3], read_with=ToolMode.AUTO)


def picture(data):
    return Media("sha", "image/png", data)


async def test_images_go_beside_their_placeholders_and_come_back_as_ranges(vllm, vllm_fake, sample):
    vllm_fake.image_tokens = lambda url: 3
    vllm_fake.script([5, 1])
    generation, _ = await sample(vllm, [2, 0, 3, 0, 4], media=(picture(b"a"), picture(b"b")), placeholder_id=0)
    ((path, body),) = vllm_fake.requests
    assert path == GENERATE
    assert body["token_ids"] == [2, 0, 3, 0, 4]
    assert body["content_parts"] == [
        {"type": "image_url", "url": "data:image/png;base64,YQ=="},
        {"type": "image_url", "url": "data:image/png;base64,Yg=="},
    ]
    assert generation.expanded == ExpandedIds(
        IdRun.of([2, 0, 0, 0, 3, 0, 0, 0, 4]), (ImageRange(1, 3, 3), ImageRange(5, 3, 3))
    )
    assert generation.usage.prompt_tokens == 9


async def test_a_prompt_whose_placeholders_are_not_its_images_is_never_sent(vllm, vllm_fake, sample):
    with pytest.raises(EngineError) as refused:
        await sample(vllm, [2, 0, 0, 4], media=(picture(b"a"),), placeholder_id=0)
    assert refused.value.code == "images_misplaced"
    assert vllm_fake.requests == []


async def test_a_constrained_answer_is_recorded_as_one(vllm, vllm_fake, ask):
    draw = Draw(stop_ids=STOP, constraint=GrammarConstraint('root ::= "yes"\n'))
    answered = await ask(vllm, [2, 3], draw)
    ((_, body),) = vllm_fake.requests
    assert body["sampling_params"]["structured_outputs"] == {"grammar": 'root ::= "yes"\n'}
    assert body["reasoning_ended"] is True
    assert answered.notes["constrained"] == "the recorded numbers are those of the constrained distribution"


async def test_the_kind_is_found_out_at_start(vllm_fake):
    engine = await connect(vllm_fake.url, EngineKind.AUTO)
    assert isinstance(engine, VllmServer)
    assert (engine.model_path, engine.capabilities.models) == ("org/fake", ("fake",))
    assert (await engine.tokenize("ab")).tolist() == [99, 100]
    assert (await engine.chat_ids((Message(Role.USER, (Text("Hi"),)),))).tolist() == [0]
    vllm_fake.placeholder_id = None
    assert await engine.chat_ids((Message(Role.USER, (Text("Hi"),)),)) is None
    assert await engine.health() == ""
    engine.wire.move_to("http://127.0.0.1:9")
    assert "No engine answers" in await engine.health()
    await engine.close()


async def test_another_key_is_asked_for_by_name(vllm_fake):
    vllm_fake.api_key = "secret"
    for kind in (EngineKind.AUTO, EngineKind.VLLM):
        with pytest.raises(EngineError, match="status 401") as refused:
            await connect(vllm_fake.url, kind, "wrong")
        assert (refused.value.code, refused.value.status) == ("engine_key_refused", 502)
    await (await connect(vllm_fake.url, EngineKind.VLLM, "secret")).close()


async def test_a_server_that_hangs_is_not_waited_for_for_ever(vllm_fake, vllm_fakes, monkeypatch):
    monkeypatch.setattr("turnstile.engines.vllm.START_LIMIT_S", 0.2)
    vllm_fake.faults.append(vllm_fakes.Fault.HANG)
    with pytest.raises(EngineError, match="did not answer a few small requests"):
        await VllmServer.open(vllm_fake.url)


async def test_another_server_is_not_taken_for_vllm(fake):
    with pytest.raises(EngineError):
        await connect(fake.url, EngineKind.VLLM)
