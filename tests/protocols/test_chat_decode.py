from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.conversation import (
    AnyText,
    Call,
    CallArity,
    Ending,
    JsonObject,
    JsonSchema,
    Message,
    NamedTool,
    RetryMark,
    Role,
    Sampling,
    Text,
    ToolMode,
    ToolSpec,
)
from turnstile.errors import CallerError
from turnstile.protocols.base import WireRequest
from turnstile.protocols.chat_decode import AnswerForm, CallForm, Delivery, decode
from turnstile.protocols.chat_request import ChatRequest

LS = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "b": 1, "a": 2}}}
NAMED = {"type": "function"}
LEGACY = {"name": "ls", "description": "lists"}


def test_a_plain_request_is_a_call_with_nothing_else_said(call_of):
    assert call_of() == Call("openai.chat", "m", (Message(Role.USER, (Text("hi"),)),))


def test_sampling_is_taken_as_the_client_gave_it(call_of):
    given_fields = {
        "temperature": 0, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "presence_penalty": -2, "frequency_penalty": 2,
        "repetition_penalty": 1.1, "logit_bias": {"9": -100, "5": 1.5}, "seed": -(2**40), "max_completion_tokens": 7,
        "stop": ["\n\n", "END"], "n": 3, "logprobs": True, "top_logprobs": 20,
    }  # fmt: skip
    assert call_of(**given_fields).sampling == Sampling(
        temperature=0.0,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        repetition_penalty=1.1,
        logit_bias=((5, 1.5), (9, -100.0)),
        seed=-(2**40),
        max_tokens=7,
        stop=("\n\n", "END"),
        choices=3,
        top_logprobs=20,
    )


def test_null_is_absent_for_every_optional_field(call_of):
    optional = set(ChatRequest.__struct_fields__) - {"model", "messages"}
    assert call_of(**dict.fromkeys(optional)) == call_of()


@pytest.mark.parametrize(("stop", "read"), [("x", ("x",)), (["x"], ("x",)), ([], ()), (None, ())])
def test_one_stop_string_may_stand_alone(call_of, stop, read):
    assert call_of(stop=stop).sampling.stop == read


@pytest.mark.parametrize("top_k", [-1, 0])
def test_both_spellings_of_no_top_k_are_one(call_of, top_k):
    assert call_of(top_k=top_k).sampling.top_k == 0


@pytest.mark.parametrize("limits", [{"max_tokens": 5}, {"max_completion_tokens": 5}])
def test_the_limit_has_two_names(call_of, limits):
    assert call_of(**limits).sampling.max_tokens == 5


def test_equal_limits_under_both_names_pass_and_different_ones_are_refused_as_at_openai(call_of, refusal_of):
    assert call_of(max_tokens=5, max_completion_tokens=5).sampling.max_tokens == 5
    assert refusal_of(max_tokens=5, max_completion_tokens=6)[1:3] == ("invalid_parameter_combination", "max_tokens")


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 0}, 0),
        ({"logprobs": True, "top_logprobs": 5}, 5),
    ],
)
def test_logprobs_are_shown_only_where_asked_for(call_of, form_of, fields, shown):
    assert (call_of(**fields).sampling.top_logprobs, form_of(**fields).top_logprobs) == (shown, shown)


@pytest.mark.parametrize("logprobs", [{}, {"logprobs": False}, {"logprobs": None}])
def test_top_logprobs_without_logprobs_are_refused(refusal_of, logprobs):
    assert refusal_of(top_logprobs=2, **logprobs)[1:3] == ("invalid_value", "top_logprobs")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", 3), ("model", ""), ("messages", []), ("messages", {}), ("n", 0), ("n", 129), ("n", 1.5),
        ("temperature", -0.1), ("temperature", 2.1), ("temperature", "1"), ("top_p", 1.1), ("top_p", -1),
        ("top_k", -2), ("min_p", 2), ("presence_penalty", 2.1), ("frequency_penalty", -2.1), ("repetition_penalty", 0),
        ("max_tokens", 0), ("max_tokens", -1), ("max_completion_tokens", "9"), ("seed", 2**63), ("seed", 1.5),
        ("stop", 3), ("stop", ""), ("stop", ["a"] * 17), ("logit_bias", [1]), ("logit_bias", {"a": 1}),
        ("logit_bias", {"-1": 1}), ("logit_bias", {"1": 101}), ("logit_bias", {"1": "x"}), ("logprobs", 5),
        ("top_logprobs", 21), ("top_logprobs", -1), ("stream", "true"), ("stream_options", []), ("tools", {}),
        ("parallel_tool_calls", "no"), ("tool_choice", 3), ("tool_choice", "any"), ("response_format", "json"),
        ("chat_template_kwargs", []), ("reasoning_effort", "ultra"), ("reasoning_effort", 3), ("functions", "x"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_type_or_range_is_refused_with_its_field(refusal_of, field, value):
    status, code, param, problem = refusal_of(**{field: value})
    assert (status, code, param.partition("[")[0]) == (400, "invalid_value", field)
    assert problem.startswith(f"`{param}`: expected ")


@pytest.mark.parametrize("field", ["model", "messages"])
def test_a_required_field_that_is_missing_is_named(refusal_of, field):
    assert refusal_of(**{field: ...})[:3] == (400, "missing_required_parameter", field)


@pytest.mark.parametrize(
    "fields",
    [{}, {"tools": None}, {"tools": []}, {"tools": [], "tool_choice": "auto"}, {"tools": [], "tool_choice": "none"},
     {"tools": [], "parallel_tool_calls": False}, {"functions": []}],
)  # fmt: skip
def test_case_g4_no_tools_are_one_call_in_every_spelling(call_of, fields):
    assert call_of(**fields) == call_of()


def test_case_g4_tools_keep_their_order_and_each_its_key_order(call_of):
    other = {"function": {"description": "d", "name": "cat"}, "type": "function"}
    assert call_of(tools=[LS, other]).tools == (ToolSpec("ls", json.dumps(LS)), ToolSpec("cat", json.dumps(other)))


@pytest.mark.parametrize(
    ("choice", "read"),
    [
        ("auto", ToolMode.AUTO),
        (None, ToolMode.AUTO),
        ("none", ToolMode.NONE),
        ("required", ToolMode.REQUIRED),
        ({"type": "function", "function": {"name": "ls"}}, NamedTool("ls")),
    ],
)
def test_each_tool_choice_is_read(call_of, choice, read):
    assert call_of(tools=[LS], tool_choice=choice).tool_choice == read


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"tools": [], "tool_choice": "required"}, "invalid_value", "tool_choice"),
        ({"tools": [LS], "tool_choice": {**NAMED, "function": {"name": "rm"}}}, "invalid_value", "tool_choice"),
        ({"tools": [LS], "tool_choice": {"type": "function"}}, "missing_required_parameter", "tool_choice.function"),
        ({"tools": [LS], "tool_choice": {"type": "allowed_tools"}}, "unsupported_parameter", "tool_choice"),
        ({"tools": [LS], "tool_choice": {"type": "custom"}}, "unsupported_parameter", "tool_choice"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "invalid_value", "tools[0].type"),
        ({"tools": [{"name": "x"}]}, "missing_required_parameter", "tools[0].type"),
        ({"tools": [LS, {"type": "function"}]}, "missing_required_parameter", "tools[1].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "invalid_value", "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "x", "parameters": 3}}]}, "invalid_value",
         "tools[0].function.parameters"),
        ({"tools": [LS], "functions": [LEGACY]}, "invalid_value", "functions"),
        ({"functions": [LEGACY], "function_call": "required"}, "invalid_value", "function_call"),
        ({"functions": [LEGACY], "function_call": {"name": "rm"}}, "invalid_value", "function_call"),
    ],
)  # fmt: skip
def test_tools_that_cannot_be_are_refused(refusal_of, fields, code, param):
    assert refusal_of(**fields)[:3] == (400, code, param)


def test_parallel_tool_calls_false_means_one_call(call_of):
    assert call_of(tools=[LS], parallel_tool_calls=False).arity is CallArity.ONE
    assert call_of(tools=[LS], parallel_tool_calls=True).arity is CallArity.MANY


@pytest.mark.parametrize(
    ("choice", "read"), [("auto", ToolMode.AUTO), ("none", ToolMode.NONE), ({"name": "ls"}, NamedTool("ls"))]
)
def test_legacy_functions_are_tools_of_which_one_may_be_called(call_of, form_of, choice, read):
    fields = {"functions": [LEGACY], "function_call": choice}
    call = call_of(**fields)
    declaration = '{"type":"function","function":{"name": "ls", "description": "lists"}}'
    assert (call.tools, call.tool_choice, call.arity) == ((ToolSpec("ls", declaration),), read, CallArity.ONE)
    assert form_of(**fields).calls is CallForm.FUNCTION_CALL


@pytest.mark.parametrize(
    ("form", "read"),
    [
        (None, AnyText()),
        ({"type": "text"}, AnyText()),
        ({"type": "json_object"}, JsonObject()),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "x", "strict": True, "schema": {"type": "object", "a": 1.0}},
            },
            JsonSchema('{"type": "object", "a": 1.0}'),
        ),
    ],
)
def test_each_response_format_is_read(call_of, form, read):
    assert call_of(response_format=form).output == read


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"type": "grammar"}, "response_format.type"),
        ({}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": [1]}}, "response_format.json_schema.schema"),
    ],
)
def test_a_response_format_that_cannot_be_is_refused(refusal_of, form, param):
    assert refusal_of(response_format=form)[2] == param


def test_template_arguments_are_sorted_and_take_the_effort_in(call_of):
    fields = {"chat_template_kwargs": {"z": {"b": 1, "a": [2.5]}, "enable_thinking": False}, "reasoning_effort": "low"}
    assert (
        call_of(**fields).template_kwargs == '{"enable_thinking":false,"reasoning_effort":"low","z":{"a":[2.5],"b":1}}'
    )


def test_a_template_argument_of_the_clients_own_wins_over_the_field(call_of):
    fields = {"chat_template_kwargs": {"reasoning_effort": "ultra"}, "reasoning_effort": "low"}
    assert call_of(**fields).template_kwargs == '{"reasoning_effort":"ultra"}'


@pytest.mark.parametrize("name", ["messages", "tools", "add_generation_prompt", "chat_template", "tokenize"])
def test_a_template_argument_that_the_request_itself_decides_is_refused(refusal_of, name):
    assert refusal_of(chat_template_kwargs={name: 1})[1:3] == ("unsupported_parameter", f"chat_template_kwargs.{name}")


PREFILL = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Sure, "}]


@pytest.mark.parametrize("extra", [{}, {"add_generation_prompt": False}])
def test_a_final_assistant_message_is_continued_when_asked(call_of, extra):
    assert call_of(messages=PREFILL, continue_final_message=True, **extra).ending is Ending.CONTINUE


def test_a_last_message_marked_as_prefix_is_continued_and_an_earlier_mark_is_history(call_of):
    marked = {"role": "assistant", "content": "Once", "prefix": True}
    user = {"role": "user", "content": "hi"}
    assert call_of(messages=[user, marked]).ending is Ending.CONTINUE
    assert call_of(messages=[user, {**marked, "prefix": False}]).ending is Ending.ANSWER
    assert call_of(messages=[user, marked, user]).ending is Ending.ANSWER


@pytest.mark.parametrize(
    ("last", "fields"),
    [
        ({"role": "user", "content": "hi"}, {}),
        ({"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}, {}),
        ({"role": "assistant", "content": "Once"}, {"add_generation_prompt": True}),
    ],
)
def test_a_prefix_that_cannot_be_continued_is_refused_by_its_place(refusal_of, last, fields):
    messages = [{"role": "user", "content": "hi"}, {**last, "prefix": True}]
    assert refusal_of(messages=messages, **fields)[1:3] == ("invalid_value", "messages[1].prefix")


@pytest.mark.parametrize("extra", [{}, {"add_generation_prompt": True}, {"continue_final_message": False}])
def test_a_final_assistant_message_is_followed_by_a_new_one_unless_asked(call_of, extra):
    assert call_of(messages=PREFILL, **extra).ending is Ending.ANSWER


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"continue_final_message": True}, "continue_final_message"),
        (
            {"continue_final_message": True, "add_generation_prompt": True, "messages": PREFILL},
            "continue_final_message",
        ),
        ({"add_generation_prompt": False}, "add_generation_prompt"),
        (
            {
                "continue_final_message": True,
                "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "ls"}}]}],
            },
            "continue_final_message",
        ),
    ],
)
def test_an_ending_that_cannot_be_is_refused(refusal_of, fields, param):
    assert refusal_of(**fields)[2] == param


@pytest.mark.parametrize(
    ("fields", "delivery"),
    [
        ({}, Delivery.WHOLE),
        ({"stream": False, "stream_options": {"include_usage": True}}, Delivery.WHOLE),
        ({"stream": True}, Delivery.STREAM),
        ({"stream": True, "stream_options": None}, Delivery.STREAM),
        ({"stream": True, "stream_options": {"include_usage": False, "include_obfuscation": False}}, Delivery.STREAM),
        ({"stream": True, "stream_options": {"include_usage": True}}, Delivery.STREAM_WITH_USAGE),
    ],
)
def test_case_e3_usage_is_streamed_only_where_asked_for(form_of, fields, delivery):
    assert form_of(**fields) == AnswerForm(delivery)


def test_usage_in_every_chunk_is_refused_by_name(refusal_of):
    options = {"include_usage": True, "continuous_usage_stats": True}
    assert refusal_of(stream=True, stream_options=options)[2] == "stream_options.continuous_usage_stats"


def test_headers_say_whether_it_is_a_retry(call_of):
    headers = {"idempotency-key": "k", "x-stainless-retry-count": "3"}
    assert call_of(headers).retry == RetryMark("k", 3)


def test_streaming_and_transport_fields_leave_the_call_as_it_is(call_of):
    assert call_of(stream=True, stream_options={"include_usage": True}, user="u", metadata={"a": "b"}) == call_of()


NAMES = st.sampled_from(
    [*ChatRequest.__struct_fields__, "role", "content", "type", "text", "function", "name", "arguments", "id",
     "json_schema", "schema", "include_usage", "tool_calls", "audio", "min_tokens", "reasoning", "modalities"]
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.text(max_size=8), inner, max_size=5),
    max_leaves=25,
)
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])
MESSAGES = st.fixed_dictionaries(
    {"role": ROLES | JSON},
    optional={
        "content": st.text(max_size=5) | JSON,
        "tool_calls": st.lists(st.fixed_dictionaries({"function": JSON}), max_size=2) | JSON,
        "function_call": JSON,
        "reasoning_details": JSON,
    },
)


def decoded_or_refused(body: bytes) -> Call | None:
    try:
        return decode(WireRequest(body, {}))[0]
    except CallerError as error:
        assert error.problem
        assert error.remedy
        assert error.status == 400
        return None


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_understood_or_refused(body: bytes):
    decoded_or_refused(body)


@settings(deadline=None, max_examples=60)
@given(st.lists(MESSAGES, min_size=1, max_size=4), st.dictionaries(NAMES, JSON, max_size=4))
def test_any_request_is_understood_or_refused(messages, fields):
    decoded_or_refused(json.dumps({"model": "m", **fields, "messages": messages}).encode())


@pytest.mark.parametrize("opener", ["[", '{"a":'])
@pytest.mark.parametrize(
    "before",
    ['{"model":"m","x":', '{"model":"m","messages":', '{"model":"m","chat_template_kwargs":{"a":', '{"tools":[',
     '{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":'],
)  # fmt: skip
@pytest.mark.parametrize("depth", [100, 900, 990, 100_000])
def test_deep_nesting_is_understood_or_refused(opener, before, depth):
    decoded_or_refused((before + opener * depth).encode())
    closer = {"[": "]", '{"a":': "1}"}[opener]
    decoded_or_refused((before + opener * depth + closer * depth + "}" * before.count("{")).encode())


def test_a_long_history_is_read_in_a_few_milliseconds():
    message = {"role": "user", "content": "word \u00e9\n" * 230}
    body = json.dumps({"model": "m", "messages": [message] * 300}, ensure_ascii=False).encode()
    assert len(body) > 500_000
    best = float("inf")
    for _ in range(5):
        began = time.process_time()
        decode(WireRequest(body, {}))
        best = min(best, time.process_time() - began)
    assert best < 0.030
