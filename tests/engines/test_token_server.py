"""The adapter for any engine that speaks ids, on a server that is only wire."""

from __future__ import annotations

import base64

import msgspec
import pytest

from turnstile.conversation import Media
from turnstile.engines import EngineKind, TokenServer, connect
from turnstile.engines.base import PolicyTeller, TokenizerTeller
from turnstile.engines.token_server import is_token_server
from turnstile.engines.wire import Wire
from turnstile.errors import CallerError, EngineError
from turnstile.generation import Draw, Finish


async def test_it_is_found_out_by_what_it_calls_its_wire(token_fake):
    server = await connect(token_fake.url)
    assert isinstance(server, TokenServer)
    assert await server.health() == ""
    await server.close()


async def test_another_info_is_no_token_server(token_fake):
    token_fake.info = {"protocol": "else/1"}
    wire = Wire.open(token_fake.url)
    assert not await is_token_server(wire)
    await wire.close()
    with pytest.raises(CallerError) as refused:
        await connect(token_fake.url, EngineKind.TOKEN_SERVER)
    assert refused.value.code == "engine_address"
    assert "`else/1`" in refused.value.problem


async def test_a_missing_key_is_named(token_fake):
    token_fake.api_key = "secret"
    with pytest.raises(EngineError, match="TURNSTILE_ENGINE_API_KEY"):
        await connect(token_fake.url, EngineKind.TOKEN_SERVER)
    server = await connect(token_fake.url, EngineKind.TOKEN_SERVER, "secret")
    await server.close()


async def test_it_says_which_tokenizer_its_ids_are_of(token_fake):
    token_fake.tokenizer_sha256 = "ab" * 32
    server = await TokenServer.open(token_fake.url)
    assert isinstance(server, TokenizerTeller)
    assert (server.tokenizer_sha256, await server.tokenize("x"), server.model_path) == ("ab" * 32, None, "")
    await server.close()


async def test_a_request_has_ids_and_what_was_asked_for(token_fake, token_engine, ask):
    token_fake.script([7, 1])
    draw = Draw(temperature=0.5, top_p=0.9, max_tokens=4, choice=2, seed=10, stop_ids=frozenset({1}))
    answered = await ask(token_engine, [4, 5], draw)
    assert answered.ids == [7, 1]
    assert token_fake.requests == [
        {
            "input_ids": [4, 5],
            "temperature": 0.5,
            "max_tokens": 4,
            "stop_ids": [1],
            "stream": True,
            "seed": 12,
            "top_p": 0.9,
        }
    ]


async def test_an_engine_without_seeds_is_sent_none(token_fake, vocabulary, ask):
    token_fake.info = {"honours": []}
    engine = (await TokenServer.open(token_fake.url)).speaking(vocabulary)
    assert "seed" not in engine.capabilities.honours
    await ask(engine, [4], Draw(seed=3, stop_ids=frozenset({1})))
    assert "seed" not in token_fake.requests[0]
    await engine.close()


async def test_an_engine_that_cannot_stream_answers_whole(token_fake, token_engine, ask):
    token_fake.streams = False
    token_fake.script([7, 8, 1])
    token_fake.updates = {2: "5"}
    answered = await ask(token_engine, [4, 5], Draw(stop_ids=frozenset({1})))
    assert (answered.ids, answered.generation.finish) == ([7, 8, 1], Finish.STOP)
    spans = [(each.label, each.start_S, each.end_S) for each in answered.generation.policy_spans]
    assert spans == [("0", 0, 1), ("0", 1, 2), ("5", 2, 3)]


async def test_it_can_be_asked_for_its_weights(token_fake, token_engine):
    token_fake.weight_version = 12
    assert isinstance(token_engine, PolicyTeller)
    assert await token_engine.policy_label() == "12"


async def test_weights_that_change_on_the_way_are_told_for_each_token(token_fake, token_engine, ask):
    token_fake.script([7, 8, 9, 1])
    token_fake.updates = {1: 3, 3: 4}
    answered = await ask(token_engine, [4, 5], Draw(stop_ids=frozenset({1})))
    spans = [(each.label, each.start_S, each.end_S) for each in answered.generation.policy_spans]
    assert spans == [("0", 0, 1), ("3", 1, 3), ("4", 3, 4)]


async def test_pictures_go_out_as_they_came_beside_one_placeholder_each(token_fake, vocabulary, prompt):
    token_fake.placeholder_id = 0
    engine = (await TokenServer.open(token_fake.url)).speaking(vocabulary)
    images = (Media("a", "image/png", b"first"), Media("b", "image/png", b"second!"))
    shown = msgspec.structs.replace(prompt([4, 0, 5, 0]), media=images, placeholder_id=0)

    async def emit(_delta):
        pass

    found = await engine.generate(shown, Draw(stop_ids=frozenset({1})), emit)
    assert token_fake.requests[0]["images"] == [base64.b64encode(each.data).decode() for each in images]
    # The fake gives an image 2 tokens and its length modulo 5.
    assert found.expanded is not None
    assert found.expanded.ids_T.tolist() == [4, 0, 0, 5, 0, 0, 0, 0]
    assert [(each.start, each.length) for each in found.expanded.ranges] == [(1, 2), (4, 4)]
    await engine.close()


async def test_a_stop_string_closes_the_connection(token_fake, token_engine, ask, vocabulary):
    token_fake.script([*vocabulary.spell("ab"), 7])
    token_fake.token_delay_s = 0.01
    answered = await ask(token_engine, [4], Draw(stop=("b",), stop_ids=frozenset({1})))
    assert (answered.ids, answered.generation.stop_string) == (vocabulary.spell("ab"), "b")


async def test_an_engine_that_samples_on_behind_a_stop_id_is_cut(token_fake, token_fakes, token_engine, ask):
    token_fake.script([7, 1, 8])
    token_fake.faults.append(token_fakes.Fault.STOPS_AT_NOTHING)
    answered = await ask(token_engine, [4], Draw(stop_ids=frozenset({1})))
    assert (answered.ids, answered.generation.finish) == ([7, 1], Finish.STOP)
