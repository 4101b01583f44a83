from __future__ import annotations

import json

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from turnstile.conversation import (
    Answer,
    Message,
    Reply,
    ReplyDelta,
    ReplyFinish,
    Role,
    Text,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from turnstile.errors import EngineError
from turnstile.protocols.base import AnswerHead
from turnstile.protocols.chat_decode import AnswerForm, CallForm, Delivery
from turnstile.protocols.chat_encode import StreamEncoder, WholeEncoder, encoder_for

HEAD = AnswerHead("c7", 1_700_000_000, "policy")
USAGE = Usage(11, 5, 8)
WHOLE = AnswerForm(Delivery.WHOLE)
STREAM = AnswerForm(Delivery.STREAM)
WITH_USAGE = AnswerForm(Delivery.STREAM_WITH_USAGE)
MESSAGES = [{"role": "user", "content": "hi"}]


def reply(content: str = "", reasoning: str = "", calls: tuple[ToolCall, ...] = (), **fields) -> Reply:
    parts = (Text(content),) if content else ()
    message = Message(Role.ASSISTANT, parts, reasoning=reasoning, calls=calls)
    return Reply(message, fields.pop("finish", ReplyFinish.STOP), **fields)


def streamed(form: AnswerForm, deltas: list[ReplyDelta], *replies: Reply) -> bytes:
    encoder = StreamEncoder(form, HEAD)
    return b"".join([*map(encoder.feed, deltas), encoder.finish(Answer(replies, USAGE))])


def events(body: bytes) -> list[dict]:
    lines = body.decode().split("\n\n")
    assert lines.pop() == ""
    payloads = [line.removeprefix("data: ") for line in lines]
    if payloads[-1] == "[DONE]":
        payloads.pop()
    return [json.loads(payload) for payload in payloads]


def gains(body: bytes) -> list[tuple[int, dict, str | None]]:
    """What each event adds: choice, delta, finish reason."""
    choices = [choice for event in events(body) for choice in event["choices"]]
    return [(choice["index"], choice["delta"], choice["finish_reason"]) for choice in choices]


def test_the_request_decides_which_encoder_answers():
    assert isinstance(encoder_for(WHOLE, HEAD), WholeEncoder)
    assert isinstance(encoder_for(STREAM, HEAD), StreamEncoder)
    assert encoder_for(WHOLE, HEAD).media_type == "application/json"
    assert encoder_for(STREAM, HEAD).media_type == "text/event-stream; charset=utf-8"


def test_a_whole_answer_leaves_at_the_end_only():
    encoder = WholeEncoder(WHOLE, HEAD)
    assert encoder.feed(ReplyDelta(content="Hello")) == b""
    assert encoder.keep_alive() == b""
    assert json.loads(encoder.finish(Answer((reply("Hello"),), USAGE))) == {
        "id": "chatcmpl-c7",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "policy",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 11,
            "completion_tokens": 5,
            "total_tokens": 16,
            "prompt_tokens_details": {"cached_tokens": 8},
        },
    }


def test_a_whole_answer_that_fails_is_an_error_body():
    body = WholeEncoder(WHOLE, HEAD).fail(EngineError("The engine went away", "Start it again"))
    assert json.loads(body)["error"]["code"] == "engine_error"


def test_a_stream_opens_with_the_role_and_closes_with_the_reason_and_the_end_mark():
    body = streamed(STREAM, [ReplyDelta(content="Hel"), ReplyDelta(content="lo")], reply("Hello"))
    assert gains(body) == [
        (0, {"role": "assistant", "content": ""}, None),
        (0, {"content": "Hel"}, None),
        (0, {"content": "lo"}, None),
        (0, {}, "stop"),
    ]
    assert body.endswith(b"data: [DONE]\n\n")
    assert {(event["id"], event["object"], event["created"], event["model"]) for event in events(body)} == {
        ("chatcmpl-c7", "chat.completion.chunk", 1_700_000_000, "policy")
    }


def test_nothing_leaves_before_there_is_something_to_tell():
    encoder = StreamEncoder(STREAM, HEAD)
    assert encoder.feed(ReplyDelta()) == b""
    assert encoder.feed(ReplyDelta(calls=(ToolCallDelta(0),))) == b""
    assert encoder.feed(ReplyDelta(logprobs=(TokenLogprob(b"x", -1.0),))) == b""
    assert encoder.feed(ReplyDelta(content="x")).startswith(b"data: ")


def test_an_answer_without_any_text_still_has_a_role():
    assert gains(streamed(STREAM, [], reply())) == [
        (0, {"role": "assistant", "content": ""}, None),
        (0, {}, "stop"),
    ]


def test_a_call_is_named_once_and_then_only_grows():
    deltas = [
        ReplyDelta(calls=(ToolCallDelta(0, "call_1", "ls"),)),
        ReplyDelta(calls=(ToolCallDelta(0, arguments='{"p":'), ToolCallDelta(1, "call_2", "cat", "{"))),
        ReplyDelta(calls=(ToolCallDelta(0, arguments="1}"),)),
    ]
    body = streamed(STREAM, deltas, reply(calls=(ToolCall("call_1", "ls", '{"p":1}'), ToolCall("call_2", "cat", "{"))))
    assert gains(body)[1:] == [
        (
            0,
            {
                "tool_calls": [
                    {"index": 0, "id": "call_1", "type": "function", "function": {"name": "ls", "arguments": ""}}
                ]
            },
            None,
        ),
        (
            0,
            {
                "tool_calls": [
                    {"index": 0, "function": {"arguments": '{"p":'}},
                    {"index": 1, "id": "call_2", "type": "function", "function": {"name": "cat", "arguments": "{"}},
                ]
            },
            None,
        ),
        (0, {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}, None),
        (0, {}, "tool_calls"),
    ]


def test_case_e1_each_kind_of_gain_has_an_event_of_its_own_and_empty_lists_say_nothing():
    deltas = [
        ReplyDelta(reasoning="r"),
        ReplyDelta(content="Hi", calls=()),
        ReplyDelta(calls=(ToolCallDelta(0, "c", "f"),)),
        ReplyDelta(calls=(ToolCallDelta(0, arguments='{"x":1}'),)),
        ReplyDelta(reasoning="s", content=" done", calls=(ToolCallDelta(0),)),
    ]
    call = ToolCall("c", "f", '{"x":1}')
    kinds = [tuple(delta) for _, delta, _ in gains(streamed(STREAM, deltas, reply("Hi done", "rs", (call,))))]
    assert kinds == [
        ("role", "content"),
        ("reasoning_content",),
        ("content",),
        ("tool_calls",),
        ("tool_calls",),
        ("reasoning_content",),
        ("content",),
        (),
    ]


def test_the_legacy_form_streams_its_one_call():
    form = AnswerForm(Delivery.STREAM, CallForm.FUNCTION_CALL)
    deltas = [
        ReplyDelta(calls=(ToolCallDelta(0, "c", "ls"),)),
        ReplyDelta(calls=(ToolCallDelta(0, arguments="{}"), ToolCallDelta(1, "d", "cat"))),
    ]
    assert gains(streamed(form, deltas, reply(calls=(ToolCall("c", "ls", "{}"),))))[1:] == [
        (0, {"function_call": {"name": "ls", "arguments": ""}}, None),
        (0, {"function_call": {"arguments": "{}"}}, None),
        (0, {}, "function_call"),
    ]


def test_case_e3_usage_comes_last_without_choices_and_only_if_asked_for():
    deltas = [ReplyDelta(content="x")]
    without = events(streamed(STREAM, deltas, reply("x")))
    assert all("usage" not in event and event["choices"] for event in without)
    *earlier, last = events(streamed(WITH_USAGE, deltas, reply("x")))
    assert [event["usage"] for event in earlier] == [None] * 3
    assert (last["choices"], last["usage"]["total_tokens"]) == ([], 16)


def test_case_e3_logprobs_never_leak_to_a_client_that_did_not_ask():
    token = TokenLogprob(b"x", -1.0, ((b"x", -1.0),))
    delta, done = ReplyDelta(content="x", logprobs=(token,)), reply("x", logprobs=(token,))
    assert b"logprobs" not in streamed(STREAM, [delta], done)
    assert b"logprobs" not in WholeEncoder(WHOLE, HEAD).finish(Answer((done,), USAGE))


def test_streamed_logprobs_add_up_to_the_whole_answers():
    tokens = tuple(TokenLogprob(bytes([97 + at]), -float(at), ((b"z", -9.0),)) for at in range(4))
    deltas = [
        ReplyDelta(reasoning="a", content="b", logprobs=tokens[:2]),
        ReplyDelta(logprobs=tokens[2:3]),
        ReplyDelta(content="d", logprobs=tokens[3:]),
    ]
    done = reply("bd", "a", logprobs=tokens)
    stream_form, whole_form = AnswerForm(Delivery.STREAM, top_logprobs=1), AnswerForm(top_logprobs=1)
    choices = [choice for event in events(streamed(stream_form, deltas, done)) for choice in event["choices"]]
    pieces = [entry for choice in choices if "logprobs" in choice for entry in choice["logprobs"]["content"]]
    whole = json.loads(WholeEncoder(whole_form, HEAD).finish(Answer((done,), USAGE)))
    assert pieces == whole["choices"][0]["logprobs"]["content"]
    assert len(pieces) == 4


def test_choices_may_speak_in_turns():
    deltas = [ReplyDelta(1, content="b"), ReplyDelta(0, content="a"), ReplyDelta(1, content="B")]
    body = streamed(STREAM, deltas, reply("a"), reply("bB", finish=ReplyFinish.LENGTH))
    assert gains(body) == [
        (1, {"role": "assistant", "content": ""}, None),
        (1, {"content": "b"}, None),
        (0, {"role": "assistant", "content": ""}, None),
        (0, {"content": "a"}, None),
        (1, {"content": "B"}, None),
        (0, {}, "stop"),
        (1, {}, "length"),
    ]


def test_a_choice_that_has_ended_gains_nothing_more():
    encoder = StreamEncoder(STREAM, HEAD)
    encoder.finish(Answer((reply("x"),), USAGE))
    with pytest.raises(RuntimeError, match="choice 0 is ended"):
        encoder.feed(ReplyDelta(content="x"))
    with pytest.raises(RuntimeError, match="choice 0 is ended"):
        encoder.finish(Answer((reply("x"),), USAGE))


def test_case_e2_a_stream_that_breaks_off_raises_in_the_official_client_and_never_ends_cleanly(answered_with):
    encoder = StreamEncoder(STREAM, HEAD)
    error = EngineError("The engine's answer broke off", "Look at the engine's log")
    body = encoder.feed(ReplyDelta(content="par")) + encoder.fail(error)
    assert b"[DONE]" not in body
    assert gains(body[: body.index(b'data: {"error"')])[-1] == (0, {"content": "par"}, None)
    client = answered_with(body, encoder.media_type)
    got = []
    with pytest.raises(openai.APIError, match="broke off"):
        got.extend(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert [chunk.choices[0].delta.content for chunk in got] == ["", "par"]


def test_case_e4_the_official_client_skips_what_keeps_the_line_open(answered_with):
    encoder = StreamEncoder(WITH_USAGE, HEAD)
    body = b"".join(
        [
            encoder.keep_alive(),
            encoder.feed(ReplyDelta(content="a")),
            encoder.keep_alive(),
            encoder.finish(Answer((reply("a"),), USAGE)),
        ]
    )
    client = answered_with(body, encoder.media_type)
    chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks if chunk.choices] == ["", "a", None]
    assert chunks[-1].usage.total_tokens == 16


TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
CALLS = st.lists(st.tuples(st.sampled_from(["ls", "cat"]), st.lists(TEXT, max_size=3)), max_size=3)


@st.composite
def spoken(draw: st.DrawFn, choice: int) -> tuple[list[ReplyDelta], Reply]:
    """One choice's deltas, and the reply that they add up to."""
    reasoning = draw(st.lists(TEXT, max_size=3))
    content = draw(st.lists(TEXT, max_size=4))
    calls = draw(CALLS)
    deltas = [ReplyDelta(choice, reasoning=piece) for piece in reasoning]
    deltas += [ReplyDelta(choice, content=piece) for piece in content]
    for index, (name, pieces) in enumerate(calls):
        deltas.append(ReplyDelta(choice, calls=(ToolCallDelta(index, f"call_{choice}_{index}", name),)))
        deltas += [ReplyDelta(choice, calls=(ToolCallDelta(index, arguments=piece),)) for piece in pieces]
    made = tuple(
        ToolCall(f"call_{choice}_{index}", name, "".join(pieces)) for index, (name, pieces) in enumerate(calls)
    )
    finish = draw(st.sampled_from([ReplyFinish.STOP, ReplyFinish.LENGTH]))
    return deltas, reply("".join(content), "".join(reasoning), made, finish=finish)


def added_up(chunks: list[ChatCompletionChunk], count: int) -> list[dict]:
    """Each choice as a client that adds up the chunks sees it."""
    choices = [{"content": "", "reasoning": "", "calls": {}, "finish": None} for _ in range(count)]
    for chunk in chunks:
        for piece in chunk.choices:
            choice = choices[piece.index]
            choice["content"] += piece.delta.content or ""
            choice["reasoning"] += getattr(piece.delta, "reasoning_content", None) or ""
            choice["finish"] = piece.finish_reason or choice["finish"]
            for call in piece.delta.tool_calls or []:
                known = choice["calls"].setdefault(call.index, [call.id, call.function.name, ""])
                known[2] += call.function.arguments or ""
    return choices


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 3))
def test_a_stream_adds_up_to_the_whole_answer_for_the_official_types(data: st.DataObject, count: int):
    told = [data.draw(spoken(choice)) for choice in range(count)]
    queues = [list(deltas) for deltas, _ in told]
    deltas: list[ReplyDelta] = []
    while any(queues):
        queue = data.draw(st.sampled_from([queue for queue in queues if queue]))
        deltas.append(queue.pop(0))
    replies = tuple(done for _, done in told)
    chunks = [ChatCompletionChunk.model_validate(event) for event in events(streamed(WITH_USAGE, deltas, *replies))]
    whole = ChatCompletion.model_validate(json.loads(WholeEncoder(WHOLE, HEAD).finish(Answer(replies, USAGE))))
    assert added_up(chunks, count) == [
        {
            "content": choice.message.content or "",
            "reasoning": getattr(choice.message, "reasoning_content", None) or "",
            "calls": {
                at: [call.id, call.function.name, call.function.arguments]
                for at, call in enumerate(choice.message.tool_calls or [])
            },
            "finish": choice.finish_reason,
        }
        for choice in whole.choices
    ]
    assert chunks[-1].usage == whole.usage


def test_the_official_client_adds_up_a_stream_by_itself(answered_with):
    deltas = [
        ReplyDelta(content="both\u2028"),
        ReplyDelta(calls=(ToolCallDelta(0, "c1", "ls"),)),
        ReplyDelta(calls=(ToolCallDelta(0, arguments='{"p":"\u00e9"}'),)),
        ReplyDelta(calls=(ToolCallDelta(1, "c2", "cat", "{}"),)),
    ]
    calls = (ToolCall("c1", "ls", '{"p":"\u00e9"}'), ToolCall("c2", "cat", "{}"))
    body = streamed(WITH_USAGE, deltas, reply("both\u2028", calls=calls))
    client = answered_with(body, "text/event-stream; charset=utf-8")
    with client.chat.completions.stream(model="m", messages=MESSAGES, stream_options={"include_usage": True}) as stream:
        done = stream.get_final_completion()
    message = done.choices[0].message
    assert (message.content, done.choices[0].finish_reason, done.usage.total_tokens) == ("both\u2028", "tool_calls", 16)
    assert [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls] == [
        ("c1", "ls", '{"p":"\u00e9"}'),
        ("c2", "cat", "{}"),
    ]


def test_the_official_client_reads_a_whole_answer(answered_with):
    done = reply("", "because", (ToolCall("c1", "ls", "{}"),))
    body = WholeEncoder(WHOLE, HEAD).finish(Answer((done,), USAGE))
    read = answered_with(body, "application/json").chat.completions.create(model="m", messages=MESSAGES)
    message = read.choices[0].message
    assert (message.content, message.reasoning_content, message.tool_calls[0].function.name) == (None, "because", "ls")
    assert (read.id, read.model, read.usage.prompt_tokens_details.cached_tokens) == ("chatcmpl-c7", "policy", 8)
