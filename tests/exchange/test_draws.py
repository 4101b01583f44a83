"""From what a client asked for to how each choice is sampled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnstile.conversation import Call, Image, JsonObject, Message, NamedTool, Role, Sampling, Text, ToolMode, ToolSpec
from turnstile.engines.base import ENFORCED, Capabilities, Missing
from turnstile.errors import CallerError
from turnstile.exchange.draws import (
    choices_of,
    clamped,
    draw_for,
    reading_of,
    refuse_images,
    refuse_lost_tools,
    refuse_what_is_not_honoured,
)
from turnstile.generation import Draw, Free, GrammarConstraint
from turnstile.parsing.formats import ENGINES_OWN, AnswerFormat
from turnstile.templates.facts import serve

ABLE = Capabilities(
    engine="llamacpp",
    version="1",
    models=("m",),
    context_length=100,
    concurrency=1,
    vocab_size=10,
    chat_template="",
    honours=frozenset({"temperature", "top_p"}),
    constraints=frozenset({"schema"}),
    max_top_logprobs=5,
    echoes_prompt_ids="count",
)


PLAIN = Call("openai.chat", "m", ())


def drawn(sampling: Sampling) -> Draw:
    call = Call("openai.chat", "m", (Message(Role.USER, (Text("hi"),)),), sampling=sampling)
    return draw_for(call, Free(), frozenset({2}), seed=7, affinity="r")


def test_what_the_client_did_not_say_is_neutral_and_the_seed_is_ours() -> None:
    assert drawn(Sampling()) == Draw(seed=7, stop_ids=frozenset({2}), affinity="r")


def test_what_the_client_said_is_taken_as_it_is() -> None:
    asked = Sampling(temperature=0.0, top_p=0.5, top_k=-1, seed=11, max_tokens=4, stop=("x",), top_logprobs=3)
    assert drawn(asked) == Draw(
        temperature=0.0, top_p=0.5, top_k=0, seed=11, max_tokens=4, stop=("x",), top_logprobs=3,
        stop_ids=frozenset({2}), affinity="r",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("max_tokens", "prompt_length", "window", "sent"),
    [
        (200, 900, 1000, 100),
        (100, 900, 1000, 100),
        (200, 999, 1000, 1),
        (200, 1000, 1000, 200),
        (200, 1100, 1000, 200),
        (200, 900, None, 200),
        (None, 900, 1000, None),
    ],
    ids=["too many", "just enough", "room for one", "no room", "a prompt too long", "window unknown", "no limit"],
)
def test_case_h1_a_clamped_draw_asks_for_the_room_that_is_left_and_a_prompt_without_room_stays_as_it_is(
    max_tokens: int | None, prompt_length: int, window: int | None, sent: int | None
) -> None:
    draw = drawn(Sampling(max_tokens=max_tokens))
    assert clamped(draw, prompt_length, window) == msgspec.structs.replace(draw, max_tokens=sent)


def test_each_choice_has_a_draw_of_its_own() -> None:
    assert [each.choice for each in choices_of(drawn(Sampling()), Sampling(choices=3))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("draw", "param"),
    [
        (Draw(top_k=4), "top_k"),
        (Draw(min_p=0.1), "min_p"),
        (Draw(logit_bias=((1, 1.0),)), "logit_bias"),
        (Draw(constraint=GrammarConstraint("root ::= x")), "tool_choice"),
        (Draw(top_logprobs=6), "top_logprobs"),
    ],
)
def test_what_the_engine_would_ignore_is_refused_by_name(draw: Draw, param: str) -> None:
    with pytest.raises(CallerError) as refused:
        refuse_what_is_not_honoured(PLAIN, draw, ABLE)
    assert (refused.value.param, refused.value.status) == (param, 400)


def test_what_cannot_be_enforced_is_named_as_it_was_asked_for_with_the_engine_s_own_flag() -> None:
    call = Call("openai.chat", "m", (), output=JsonObject())
    flagged = msgspec.structs.replace(ABLE, missing=(Missing(ENFORCED, "They are refused", "Start it with --x"),))
    with pytest.raises(CallerError) as refused:
        refuse_what_is_not_honoured(call, Draw(constraint=GrammarConstraint("root ::= x")), flagged)
    assert (refused.value.param, refused.value.remedy) == ("response_format", "Start it with --x")


def test_what_the_engine_honours_passes() -> None:
    refuse_what_is_not_honoured(PLAIN, Draw(temperature=0.2, top_p=0.9, top_logprobs=5), ABLE)
    refuse_what_is_not_honoured(PLAIN, Draw(top_k=4), msgspec.structs.replace(ABLE, honours=frozenset({"top_k"})))


WITH_TOOL = Call(
    "openai.chat", "m", (Message(Role.USER, (Text("hi"),)),), tools=(ToolSpec("t", '{"function":{"name":"t"}}'),)
)


def test_tools_that_the_template_does_not_print_are_refused_by_name(family_files: Any) -> None:
    deaf = serve(family_files("smollm2"), model="m")
    with pytest.raises(CallerError) as refused:
        refuse_lost_tools(WITH_TOOL, deaf)
    assert (refused.value.param, refused.value.status) == ("tools", 400)


def test_tools_that_are_printed_or_not_to_be_called_pass(family_files: Any) -> None:
    refuse_lost_tools(WITH_TOOL, serve(family_files("qwen3"), model="m"))
    refuse_lost_tools(
        msgspec.structs.replace(WITH_TOOL, tool_choice=ToolMode.NONE), serve(family_files("smollm2"), model="m")
    )


def test_answers_are_the_engine_s_to_read_only_where_their_format_is() -> None:
    tools = (ToolSpec("go", "{}"),)
    for choice in (ToolMode.AUTO, ToolMode.NONE, NamedTool("go")):
        call = Call("openai.chat", "m", (), tools=tools, tool_choice=choice)
        forcing = msgspec.structs.replace(ABLE, constraints=frozenset({"calls"}))
        assert reading_of(call, AnswerFormat(None, "hermes"), ABLE) is None
        assert reading_of(call, ENGINES_OWN, forcing) == choice


def test_a_call_that_the_engine_reads_is_required_only_of_one_that_can_be_made_to_write_it() -> None:
    call = Call("openai.chat", "m", (), tools=(ToolSpec("go", "{}"),), tool_choice=ToolMode.REQUIRED)
    with pytest.raises(CallerError) as caught:
        reading_of(call, ENGINES_OWN, ABLE)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "tool_choice")


def test_an_image_is_refused_by_its_message_where_the_engine_takes_none() -> None:
    look = Message(Role.USER, (Text("look"), Image("00" * 32, "image/png")))
    call = Call("openai.chat", "m", (Message(Role.SYSTEM, (Text("hi"),)), look))
    with pytest.raises(CallerError) as caught:
        refuse_images(call, ABLE)
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "images_not_supported", "messages[1]")
    assert caught.value.remedy == "Send text only, or serve a model that sees, with its image part"
    lacking = msgspec.structs.replace(ABLE, missing=(Missing("images", "It fails at a picture", "A newer server"),))
    with pytest.raises(CallerError) as caught:
        refuse_images(call, lacking)
    assert caught.value.remedy == "A newer server"


def test_images_and_text_pass_where_the_engine_takes_them() -> None:
    look = Message(Role.USER, (Image("00" * 32, "image/png"),))
    refuse_images(Call("openai.chat", "m", (look,)), msgspec.structs.replace(ABLE, images="collapsed"))
    refuse_images(Call("openai.chat", "m", (Message(Role.USER, (Text("hi"),)),)), ABLE)
