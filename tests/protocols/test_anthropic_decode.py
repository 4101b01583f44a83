from __future__ import annotations

import json

import pytest

from turnstile.conversation import (
    AnyText,
    CallArity,
    Ending,
    JsonSchema,
    NamedTool,
    RetryMark,
    Sampling,
    ToolMode,
)
from turnstile.protocols.anthropic_decode import AnswerForm, Delivery, ThinkingDisplay, decode, decode_count

LS = {"name": "ls", "input_schema": {"type": "object"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def test_sampling_is_what_the_client_said(messages_call):
    call = messages_call(temperature=0.5, top_p=0.9, top_k=5, stop_sequences=["END", "\n\n"], max_tokens=7)
    assert call.sampling == Sampling(temperature=0.5, top_p=0.9, top_k=5, stop=("END", "\n\n"), max_tokens=7)


def test_what_chat_clients_may_say_may_be_said_here_too(messages_call, messages_refusal):
    asked = {"seed": 7, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.5}
    assert messages_call(**asked).sampling == Sampling(max_tokens=9, **asked)
    kwargs = {"enable_thinking": True, "x": 1}
    call = messages_call(thinking={"type": "disabled"}, chat_template_kwargs=kwargs)
    assert json.loads(call.template_kwargs) == kwargs
    assert messages_refusal(guided_regex="a+")[1:3] == ("unsupported_parameter", "guided_regex")


def test_what_the_client_did_not_say_stays_unsaid(messages_call):
    assert messages_call().sampling == Sampling(max_tokens=9)


def test_top_k_is_off_in_both_spellings(messages_call):
    assert messages_call(top_k=-1).sampling == messages_call(top_k=0).sampling


@pytest.mark.parametrize(
    ("asked", "mode"),
    [
        (None, ToolMode.AUTO),
        ({"type": "auto"}, ToolMode.AUTO),
        ({"type": "any"}, ToolMode.REQUIRED),
        ({"type": "none"}, ToolMode.NONE),
        ({"type": "tool", "name": "ls"}, NamedTool("ls")),
    ],
)
def test_tool_choice_is_one_of_four(messages_call, asked, mode):
    assert messages_call(tools=[LS], tool_choice=asked).tool_choice == mode


@pytest.mark.parametrize(
    ("asked", "tools", "param"),
    [
        ({"type": "any"}, [], "tool_choice"),
        ({"type": "tool"}, [LS], "tool_choice.name"),
        ({"type": "tool", "name": "cd"}, [LS], "tool_choice.name"),
        ({"type": "some"}, [LS], "tool_choice.type"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(messages_refusal, asked, tools, param):
    assert messages_refusal(tools=tools, tool_choice=asked)[2] == param


def test_parallel_calls_can_be_switched_off(messages_call):
    off = {"type": "auto", "disable_parallel_tool_use": True}
    assert messages_call(tools=[LS], tool_choice=off).arity is CallArity.ONE
    assert messages_call(tool_choice=off).arity is CallArity.MANY
    assert messages_call(tools=[LS], tool_choice={"type": "auto"}).arity is CallArity.MANY


@pytest.mark.parametrize(
    ("thinking", "kwargs"),
    [
        (None, {}),
        ({"type": "adaptive", "display": "updates"}, {}),
        ({"type": "between_tools"}, {}),
        ({"type": "enabled", "budget_tokens": 2048}, {"enable_thinking": True}),
        ({"type": "disabled"}, {"enable_thinking": False}),
    ],
)
def test_thinking_becomes_what_templates_know_of_it(messages_call, thinking, kwargs):
    assert json.loads(messages_call(thinking=thinking).template_kwargs) == kwargs


def test_effort_is_reasoning_effort(messages_call):
    assert messages_call(output_config={"effort": "low"}).template_kwargs == '{"reasoning_effort":"low"}'


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_format": {"type": "json_schema", "schema": 7}}, "output_format.schema"),
    ],
)
def test_a_setting_that_is_none_is_refused_by_field(messages_refusal, fields, param):
    assert messages_refusal(**fields)[2] == param


@pytest.mark.parametrize("place", ["output_config", "output_format"])
def test_a_schema_for_the_answer_is_taken_in_both_places(messages_call, place):
    form = {"type": "json_schema", "schema": SCHEMA}
    call = messages_call(**{place: {"format": form} if place == "output_config" else form})
    assert call.output == JsonSchema(json.dumps(SCHEMA))
    assert messages_call(output_config={"effort": "low"}).output == AnyText()


def test_messages_that_end_with_the_assistant_are_continued(messages_call, messages_refusal):
    asked = {"role": "user", "content": "Sun?"}
    begun = {"role": "assistant", "content": "The best answer is ("}
    assert messages_call(messages=[asked, begun]).ending is Ending.CONTINUE
    assert messages_call(messages=[asked, begun, asked]).ending is Ending.ANSWER
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "ls", "input": {}}]}
    assert messages_refusal(messages=[asked, call])[1:3] == ("invalid_value", "messages[1]")


def test_the_form_of_the_answer_is_the_clients(messages_form):
    assert messages_form() == AnswerForm()
    assert messages_form(stream=True) == AnswerForm(Delivery.STREAM)
    hidden = {"type": "adaptive", "display": "omitted"}
    assert messages_form(thinking=hidden) == AnswerForm(thinking=ThinkingDisplay.OMITTED)


def test_a_retry_says_so_in_headers(messages_call):
    headers = {"x-stainless-retry-count": "2", "idempotency-key": "k", "anthropic-beta": "a,b"}
    assert messages_call(headers).retry == RetryMark("k", 2)


def test_a_count_needs_no_limit_and_is_else_the_same_call(messages_request):
    asked = {"tools": [LS], "system": "s", "thinking": {"type": "disabled"}}
    counted = decode_count(messages_request(max_tokens=..., **asked))
    call, _ = decode(messages_request(**asked))
    assert (counted.messages, counted.tools, counted.template_kwargs) == (
        call.messages, call.tools, call.template_kwargs,
    )  # fmt: skip
    assert counted.sampling.max_tokens is None
