"""Responses answers, read by the official SDK."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.conversation import Answer, Message, Reply, ReplyDelta, ReplyFinish, Role, ToolCallDelta, Usage
from turnstile.errors import EngineError
from turnstile.protocols.base import AnswerHead, Encoder
from turnstile.protocols.openai_error import error_body
from turnstile.protocols.responses_decode import AnswerForm, Delivery
from turnstile.protocols.responses_encode import encoder_for

HEAD = AnswerHead("r-c0", 7, "m")
WHOLE = AnswerForm()
STREAM = AnswerForm(Delivery.STREAM)
DELTAS = (
    ReplyDelta(reasoning="Let me "),
    ReplyDelta(reasoning="see.", content="Hi "),
    ReplyDelta(content="there\u2028\n"),
    ReplyDelta(calls=(ToolCallDelta(0, "call_1", "ls"), ToolCallDelta(0, arguments='{"p": "/"}'))),
    ReplyDelta(content="done"),
)


def answer(finish: ReplyFinish = ReplyFinish.STOP) -> Answer:
    return Answer((Reply(Message(Role.ASSISTANT), finish),), Usage(5, 2))


def body(encoder: Encoder, deltas: tuple[ReplyDelta, ...] = DELTAS, finish: ReplyFinish = ReplyFinish.STOP) -> bytes:
    return b"".join([*map(encoder.feed, deltas), encoder.finish(answer(finish))])


def events(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in stream.decode().split("\n") if line.startswith("data: ")]


def test_the_official_client_reads_a_whole_answer(answered_with: Callable[..., openai.OpenAI]):
    client = answered_with(body(encoder_for(WHOLE, HEAD)), "application/json")
    response = client.responses.create(model="m", input="x")
    assert response.output_text == "Hi there\u2028\ndone"
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "message"]


def test_the_official_stream_helper_adds_up_to_the_whole_answer(answered_with: Callable[..., openai.OpenAI]):
    whole = json.loads(body(encoder_for(WHOLE, HEAD)))
    client = answered_with(body(encoder_for(STREAM, HEAD)), "text/event-stream")
    with client.responses.stream(model="m", input="x") as stream:
        seen = list(stream)
        final = stream.get_final_response()
    assert [item.to_dict()["id"] for item in final.output] == [item["id"] for item in whole["output"]]
    assert final.output_text == "Hi there\u2028\ndone"
    assert [event.type for event in seen][:2] == ["response.created", "response.in_progress"]


@pytest.mark.parametrize("deltas", [DELTAS, DELTAS[:1], ()], ids=["all", "reasoning only", "nothing"])
@pytest.mark.parametrize("finish", [ReplyFinish.STOP, ReplyFinish.LENGTH])
def test_a_stream_ends_in_the_object_that_comes_whole(deltas: tuple[ReplyDelta, ...], finish: ReplyFinish):
    whole = json.loads(body(encoder_for(WHOLE, HEAD), deltas, finish))
    *_, last = events(body(encoder_for(STREAM, HEAD), deltas, finish))
    assert last["response"] == whole
    assert last["type"] == f"response.{whole['status']}"


words = st.text(max_size=4)
pieces = st.builds(ReplyDelta, reasoning=words, content=words) | st.builds(
    lambda at, text: ReplyDelta(calls=(ToolCallDelta(at, f"call_{at}", "f", text),)), st.integers(0, 3), words
)


@settings(deadline=None, max_examples=80)
@given(deltas=st.lists(pieces, max_size=8))
def test_every_stream_is_whole_items_in_order_and_equals_the_whole_answer(deltas: list[ReplyDelta]):
    seen = events(body(encoder_for(STREAM, HEAD), tuple(deltas)))
    assert [event["sequence_number"] for event in seen] == list(range(len(seen)))
    assert [event["item"] for event in seen if event["type"].endswith("item.done")] == seen[-1]["response"]["output"]
    open_items: list[int] = []
    for event in seen:
        if event["type"].endswith("item.added"):
            assert not open_items
            open_items.append(event["output_index"])
        elif "output_index" in event:
            assert open_items == [event["output_index"]]
            if event["type"].endswith("item.done"):
                open_items.clear()
    assert seen[-1]["response"] == json.loads(body(encoder_for(WHOLE, HEAD), tuple(deltas)))


def test_nothing_leaves_before_something_can_be_shown():
    encoder = encoder_for(STREAM, HEAD)
    assert encoder.feed(ReplyDelta()) == b""
    assert encoder.feed(ReplyDelta(content="x")).startswith(b"event: response.created\n")
    whole = encoder_for(WHOLE, HEAD)
    assert (whole.feed(ReplyDelta(content="x")), whole.keep_alive(), whole.media_type) == (b"", b"", "application/json")


@pytest.mark.parametrize("deltas", [(), DELTAS[:2]], ids=["nothing said", "in mid answer"])
def test_a_stream_that_breaks_fails_and_is_never_completed(
    answered_with: Callable[..., openai.OpenAI], deltas: tuple[ReplyDelta, ...]
):
    encoder = encoder_for(STREAM, HEAD)
    stream = encoder.keep_alive() + b"".join(map(encoder.feed, deltas)) + encoder.fail(EngineError("Down", "Start it"))
    seen = events(stream)
    assert [event["type"] for event in seen[-2:]] == ["error", "response.failed"]
    assert seen[-1]["response"]["status"] == "failed"
    assert [item["type"] for item in seen[-1]["response"]["output"]] == (["reasoning"] if deltas else [])
    client = answered_with(stream, "text/event-stream")
    with client.responses.stream(model="m", input="x") as helper:
        assert [event.type for event in helper][-1] == "response.failed"
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            helper.get_final_response()


def test_a_whole_answer_that_fails_is_an_error_body():
    error = EngineError("Down", "Start it")
    assert encoder_for(WHOLE, HEAD).fail(error) == error_body(error)
