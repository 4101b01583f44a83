from __future__ import annotations

import json

import anthropic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.conversation import Answer, Message, Reply, ReplyDelta, ReplyFinish, Role, Text, ToolCallDelta, Usage
from turnstile.errors import EngineError
from turnstile.protocols.anthropic_decode import AnswerForm, Delivery
from turnstile.protocols.anthropic_encode import StreamEncoder, WholeEncoder, encoder_for
from turnstile.protocols.base import AnswerHead
from turnstile.protocols.signature import signature_of

HEAD = AnswerHead("r-c7", 1_700_000_000, "policy")
WHOLE = AnswerForm(Delivery.WHOLE)
STREAM = AnswerForm(Delivery.STREAM)
ASKED = {"model": "policy", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
CALL = (ToolCallDelta(0, "t1", "ls"), ToolCallDelta(0, arguments='{"p": "/a"}'))
SAID = [ReplyDelta(reasoning="so"), ReplyDelta(content="Hi"), ReplyDelta(calls=CALL), ReplyDelta(content=" done")]


def answer(finish: ReplyFinish = ReplyFinish.STOP, stop_string: str = "") -> Answer:
    message = Message(Role.ASSISTANT, (Text("unused: what was fed counts"),))
    return Answer((Reply(message, finish, stop_string=stop_string),), Usage(11, 5, 8))


def told(form: AnswerForm, deltas: list[ReplyDelta], ending: Answer | None = None) -> bytes:
    encoder = encoder_for(form, HEAD)
    return b"".join([*map(encoder.feed, deltas), encoder.finish(ending or answer())])


def events(body: bytes) -> list[tuple[str, dict]]:
    """Name and payload of each event."""
    blocks = body.decode().split("\n\n")
    assert blocks.pop() == ""
    pairs = [block.split("\n") for block in blocks]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


def test_the_request_decides_which_encoder_answers():
    assert isinstance(encoder_for(WHOLE, HEAD), WholeEncoder)
    assert isinstance(encoder_for(STREAM, HEAD), StreamEncoder)
    assert encoder_for(WHOLE, HEAD).media_type == "application/json"
    assert encoder_for(STREAM, HEAD).media_type == "text/event-stream; charset=utf-8"


def test_a_whole_answer_leaves_at_the_end_only():
    encoder = WholeEncoder(WHOLE, HEAD)
    assert [encoder.feed(delta) for delta in SAID] == [b""] * 4
    assert encoder.keep_alive() == b""
    assert json.loads(encoder.finish(answer(ReplyFinish.TOOL_CALLS))) == {
        "id": "msg_r-c7",
        "type": "message",
        "role": "assistant",
        "model": "policy",
        "content": [
            {"type": "thinking", "thinking": "so", "signature": signature_of("r-c7")},
            {"type": "text", "text": "Hi", "citations": None},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "/a"}},
            {"type": "text", "text": " done", "citations": None},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "output_tokens": 5,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 8,
        },
    }


def test_an_answer_of_nothing_is_a_message_without_blocks():
    assert json.loads(told(WHOLE, []))["content"] == []
    assert [name for name, _ in events(told(STREAM, []))] == ["message_start", "message_delta", "message_stop"]


def test_a_stream_begins_with_an_empty_message_and_ends_with_whole_counts():
    heard = events(told(STREAM, [ReplyDelta(content="Hi")], answer(stop_string="END")))
    assert all(name == payload["type"] for name, payload in heard)
    assert [name for name, _ in heard] == [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    message = heard[0][1]["message"]
    assert (message["content"], message["stop_reason"], message["id"]) == ([], None, "msg_r-c7")
    assert heard[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    assert heard[-2][1]["usage"]["input_tokens"] == 3
    assert heard[-1][1] == {"type": "message_stop"}


def test_case_e4_a_ping_keeps_the_line_open_behind_the_beginning():
    encoder = StreamEncoder(STREAM, HEAD)
    body = b"".join([encoder.keep_alive(), encoder.keep_alive(), encoder.feed(ReplyDelta(content="Hi"))])
    assert [name for name, _ in events(body)] == [
        "message_start", "ping", "ping", "content_block_start", "content_block_delta",
    ]  # fmt: skip


def test_nothing_leaves_before_something_is_shown():
    assert StreamEncoder(STREAM, HEAD).feed(ReplyDelta()) == b""


def test_case_f5_a_failure_is_an_error_event_and_the_message_never_ends(anthropic_answered):
    encoder = StreamEncoder(STREAM, HEAD)
    body = encoder.feed(ReplyDelta(content="Hi")) + encoder.fail(EngineError("It died", "Look"))
    assert events(body)[-1] == (
        "error",
        {"type": "error", "error": {"type": "api_error", "message": "It died. Look."}, "request_id": "req_r-c7"},
    )
    assert b"message_stop" not in body
    with (
        pytest.raises(anthropic.APIStatusError, match="It died"),
        anthropic_answered(body, encoder.media_type).messages.stream(**ASKED) as stream,
    ):
        list(stream)


def test_a_whole_answer_that_failed_is_an_error_body():
    body = WholeEncoder(WHOLE, HEAD).fail(EngineError("It died", "Look"))
    assert json.loads(body)["error"]["message"] == "It died. Look."


@pytest.mark.parametrize("happening", ["feed", "finish", "keep_alive"])
def test_nothing_follows_the_end(happening):
    encoder = StreamEncoder(STREAM, HEAD)
    encoder.finish(answer())
    with pytest.raises(RuntimeError, match="ended"):
        match happening:
            case "feed":
                encoder.feed(ReplyDelta(content="x"))
            case "finish":
                encoder.finish(answer())
            case _:
                encoder.keep_alive()


def test_case_e1_the_sdk_makes_the_same_message_of_a_stream_as_of_a_whole_answer(anthropic_answered):
    whole = anthropic_answered(told(WHOLE, SAID), "application/json").messages.create(**ASKED)
    with anthropic_answered(told(STREAM, SAID), "text/event-stream").messages.stream(**ASKED) as stream:
        streamed = stream.get_final_message()
    assert whole.to_dict() == _without_helpers(streamed.to_dict())
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "text"]


def _without_helpers(message: dict) -> dict:
    """What the SDK's stream helper adds is none of ours."""
    assert message.pop("stop_details") is None
    for block in message["content"]:
        block.pop("parsed_output", None)
    return message


words = st.text(st.characters(codec="utf-8"), max_size=6)
gained = st.builds(ReplyDelta, reasoning=words, content=words) | st.builds(
    lambda at, name, value: ReplyDelta(
        calls=(ToolCallDelta(at, f"t{at}", name), ToolCallDelta(at, arguments=json.dumps({"v": value})))
    ),
    at=st.integers(0, 3),
    name=st.just("ls"),
    value=words,
)


@settings(deadline=None, max_examples=60)
@given(st.lists(gained, max_size=6))
def test_a_stream_and_a_whole_answer_always_say_the_same(deltas):
    whole = json.loads(told(WHOLE, deltas))
    blocks: dict[int, dict] = {}
    open_index = None
    for name, event in events(told(STREAM, deltas))[1:-2]:
        match name:
            case "content_block_start":
                assert open_index is None and event["index"] == len(blocks)
                open_index = event["index"]
                blocks[open_index] = {**event["content_block"], "_json": ""}
            case "content_block_delta":
                assert event["index"] == open_index
                _gain(blocks[open_index], event["delta"])
            case "content_block_stop":
                assert event["index"] == open_index
                open_index = None
    assert open_index is None
    for block in blocks.values():
        written = block.pop("_json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(written or "{}")
    assert list(blocks.values()) == whole["content"]


def _gain(block: dict, delta: dict) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "input_json_delta":
            block["_json"] += delta["partial_json"]
