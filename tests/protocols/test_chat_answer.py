from __future__ import annotations

import math

import msgspec
import pytest
from openai.types.chat import ChatCompletionMessage
from openai.types.chat.chat_completion import ChoiceLogprobs
from openai.types.completion_usage import CompletionUsage

from turnstile.conversation import Message, Reply, ReplyFinish, Role, Text, TokenLogprob, ToolCall, Usage
from turnstile.protocols.chat_answer import finish_reason_of, logprobs_of, message_of, usage_of
from turnstile.protocols.chat_decode import CallForm

LS = ToolCall("call_1", "ls", '{"p": "/a"}')


def written(struct: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(struct))


def said(*parts: str, **fields: object) -> Message:
    return Message(Role.ASSISTANT, tuple(Text(part) for part in parts), **fields)


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (said("a", "b"), {"content": "ab"}),
        (said(), {"content": ""}),
        (said("a", reasoning="r"), {"content": "a", "reasoning_content": "r"}),
        (
            said(calls=(LS,)),
            {
                "content": None,
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"p": "/a"}'}}
                ],
            },
        ),
    ],
)
def test_a_message_is_written_with_the_members_that_it_has(message, wire):
    assert written(message_of(message, CallForm.TOOL_CALLS)) == {"role": "assistant", "refusal": None, **wire}
    ChatCompletionMessage.model_validate(written(message_of(message, CallForm.TOOL_CALLS)))


def test_the_legacy_form_has_room_for_the_first_call():
    assert written(message_of(said(calls=(LS, LS)), CallForm.FUNCTION_CALL)) == {
        "role": "assistant",
        "refusal": None,
        "content": None,
        "function_call": {"name": "ls", "arguments": '{"p": "/a"}'},
    }


@pytest.mark.parametrize(
    ("finish", "calls", "form", "reason"),
    [
        (ReplyFinish.STOP, (), CallForm.TOOL_CALLS, "stop"),
        (ReplyFinish.STOP, (LS,), CallForm.TOOL_CALLS, "tool_calls"),
        (ReplyFinish.TOOL_CALLS, (LS,), CallForm.TOOL_CALLS, "tool_calls"),
        (ReplyFinish.STOP, (LS,), CallForm.FUNCTION_CALL, "function_call"),
        (ReplyFinish.LENGTH, (LS,), CallForm.TOOL_CALLS, "length"),
        (ReplyFinish.LENGTH, (), CallForm.TOOL_CALLS, "length"),
    ],
)
def test_a_stop_after_a_call_is_told_as_the_call(finish, calls, form, reason):
    assert finish_reason_of(Reply(said(calls=calls), finish), form) == reason


def test_logprobs_are_left_out_where_they_were_not_asked_for():
    assert logprobs_of((TokenLogprob(b"a", -0.5),), None) is msgspec.UNSET


def test_logprobs_have_openais_form_and_no_more_alternatives_than_asked_for():
    tokens = (TokenLogprob(b" hi", -0.5, ((b" hi", -0.5), (b"\xf0\x9f", -1.5), (b"x", -2.0))),)
    wire = written(logprobs_of(tokens, 2))
    assert wire == {
        "content": [
            {
                "token": " hi",
                "logprob": -0.5,
                "bytes": [32, 104, 105],
                "top_logprobs": [
                    {"token": " hi", "logprob": -0.5, "bytes": [32, 104, 105]},
                    {"token": "\ufffd", "logprob": -1.5, "bytes": [240, 159]},
                ],
            }
        ],
        "refusal": None,
    }
    ChoiceLogprobs.model_validate(wire)


@pytest.mark.parametrize("value", [None, -math.inf, math.nan])
def test_an_unknown_logprob_is_the_number_that_openai_documents_for_it(value):
    wire = written(logprobs_of((TokenLogprob(b"a", value),), 0))
    assert wire["content"][0]["logprob"] == -9999.0
    ChoiceLogprobs.model_validate(wire)


@pytest.mark.parametrize(
    ("usage", "wire"),
    [
        (Usage(3, 4), {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}),
        (
            Usage(3, 4, 0),
            {
                "prompt_tokens": 3,
                "completion_tokens": 4,
                "total_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 0},
            },
        ),
    ],
)
def test_usage_adds_up_and_tells_cached_tokens_where_they_are_known(usage, wire):
    assert written(usage_of(usage)) == wire
    CompletionUsage.model_validate(wire)
