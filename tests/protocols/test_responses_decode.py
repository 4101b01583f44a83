"""Responses requests, understood."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnstile.conversation import (
    AnyText,
    Call,
    CallArity,
    JsonObject,
    JsonSchema,
    Message,
    RetryMark,
    Role,
    Sampling,
    Storage,
    Text,
    Thread,
    ToolMode,
    ToolSpec,
)
from turnstile.errors import CallerError
from turnstile.protocols.base import WireRequest
from turnstile.protocols.responses_decode import AnswerForm, Delivery, ReasoningForm, Sealing, decode

LS: dict[str, Any] = {"type": "function", "name": "ls", "parameters": {"type": "object"}}


def request(headers: dict[str, str] | None = None, **fields: Any) -> WireRequest:
    return WireRequest(json.dumps({"model": "m", "input": "hi", **fields}).encode(), headers or {})


def call_of(headers: dict[str, str] | None = None, **fields: Any) -> Call:
    return decode(request(headers, **fields))[0]


def form_of(**fields: Any) -> AnswerForm:
    return decode(request(**fields))[1]


def test_the_plainest_request_is_a_call_that_later_ones_may_name():
    assert call_of() == Call(
        dialect="openai.responses",
        model="m",
        messages=(Message(Role.USER, (Text("hi"),)),),
        thread=Thread(storage=Storage.REFERABLE),
    )


def test_every_setting_has_its_place():
    call = call_of(
        temperature=0.5, top_p=0.9, top_k=-1, min_p=0.1, seed=7, stop="x", presence_penalty=1, frequency_penalty=-1,
        repetition_penalty=1.1, max_output_tokens=9, top_logprobs=2,
    )  # fmt: skip
    assert call.sampling == Sampling(
        temperature=0.5, top_p=0.9, top_k=0, min_p=0.1, seed=7, stop=("x",), presence_penalty=1.0,
        frequency_penalty=-1.0, repetition_penalty=1.1, max_tokens=9, top_logprobs=2,
    )  # fmt: skip


def test_log_probabilities_are_asked_for_by_inclusion_or_by_number():
    asked = [{}, {"include": ["message.output_text.logprobs"]}, {"top_logprobs": 3}, {"top_logprobs": 0}]
    assert [call_of(**each).sampling.top_logprobs for each in asked] == [None, 0, 3, None]


def test_a_thread_is_what_the_request_leaves_to_our_memory():
    call = call_of(instructions="I", previous_response_id="resp_r-c3", store=False)
    assert call.thread == Thread(previous="r-c3", instructions_M=1)
    assert call_of(previous_response_id="foreign").thread.previous == "foreign"


@pytest.mark.parametrize(
    ("form", "output"),
    [
        ({"type": "text"}, AnyText()), ({"type": "json_object"}, JsonObject()),
        ({"type": "json_schema", "name": "n", "schema": {"b": 1, "a": 2}}, JsonSchema('{"b": 1, "a": 2}')),
    ],
)  # fmt: skip
def test_the_form_of_the_text_is_read(form: dict[str, Any], output: object):
    assert call_of(text={"format": form, "verbosity": "low"}).output == output


def test_one_call_at_a_time_is_a_matter_of_tools():
    assert call_of(tools=[LS], parallel_tool_calls=False).arity is CallArity.ONE
    assert call_of(parallel_tool_calls=False).arity is CallArity.MANY


def test_tools_and_their_choice_are_read():
    call = call_of(tools=[LS], tool_choice="required")
    declared = ToolSpec("ls", '{"type":"function","function":{"name":"ls","parameters":{"type": "object"}}}')
    assert (call.tools, call.tool_choice) == ((declared,), ToolMode.REQUIRED)


def test_effort_and_extensions_go_to_the_template():
    call = call_of(reasoning={"effort": "low"}, chat_template_kwargs={"enable_thinking": False})
    assert call.template_kwargs == '{"enable_thinking":false,"reasoning_effort":"low"}'


def test_retries_are_read_from_the_headers():
    call = call_of({"x-stainless-retry-count": "2", "idempotency-key": "k"})
    assert call.retry == RetryMark("k", 2)


@pytest.mark.parametrize("name", ["originator", "user-agent"])
def test_what_codex_offers_unasked_is_noted_beside_unknown_fields(name: str):
    call = call_of({name: "codex_exec/0.171.0"}, tools=[{"type": "web_search"}], whatever=1)
    assert (call.tools, call.unknown_fields) == ((), ("whatever", "tools[0]: web_search"))


def test_the_form_of_the_answer_is_read():
    include = ["reasoning.encrypted_content", "file_search_call.results"]
    form = form_of(stream=True, reasoning={"summary": "auto"}, include=include, metadata={"a": "b"})
    assert (form.delivery, form.reasoning, form.sealing) == (
        Delivery.STREAM, ReasoningForm.SUMMARY, Sealing.MARKED,
    )  # fmt: skip
    assert {name: bytes(raw) for name, raw in form.echo.items()} == {
        "metadata": b'{"a": "b"}', "reasoning": b'{"summary": "auto"}',
    }  # fmt: skip
    assert form_of().reasoning is ReasoningForm.CONTENT


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"input": ""}, "invalid_value", "input"), ({"input": None}, "missing_required_parameter", "input"),
        ({"include": ["everything"]}, "invalid_value", "include[0]"),
        ({"metadata": {str(at): "x" for at in range(17)}}, "invalid_value", "metadata"),
        ({"reasoning": {"summary": "long"}}, "invalid_value", "reasoning.summary"),
        ({"reasoning": {"effort": "huge"}}, "invalid_value", "reasoning.effort"),
        ({"text": {"format": {"type": "xml"}}}, "invalid_value", "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "missing_required_parameter",
         "text.format.schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_field(fields: dict[str, Any], code: str, param: str):
    with pytest.raises(CallerError) as caught:
        decode(request(**fields))
    assert (caught.value.code, caught.value.param) == (code, param)
