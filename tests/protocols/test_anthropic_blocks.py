from __future__ import annotations

import msgspec
import pytest

from turnstile.conversation import ReplyDelta, ToolCallDelta
from turnstile.protocols.anthropic_answer import WireText, WireThinking, WireToolUse
from turnstile.protocols.anthropic_blocks import BlockWriter, content_of
from turnstile.protocols.anthropic_decode import ThinkingDisplay


@pytest.fixture
def written():
    """The blocks' events as plain values, for these deltas."""

    def write(*deltas: ReplyDelta, thinking: ThinkingDisplay = ThinkingDisplay.SHOWN) -> list:
        writer = BlockWriter("sig", thinking)
        events = [event for delta in deltas for event in writer.gain(delta)] + writer.close()
        return [msgspec.json.decode(msgspec.json.encode(event)) for event in events]

    return write


def shape(events: list) -> list[tuple]:
    """Type, index and what is in it."""
    return [(event["type"].removeprefix("content_block_"), event["index"], *_inside(event)) for event in events]


def _inside(event: dict) -> tuple:
    if "delta" in event:
        kind, value = event["delta"].values()
        return (kind, value)
    return (event["content_block"]["type"],) if "content_block" in event else ()


def opened(index: int, name: str, call_id: str) -> ReplyDelta:
    return ReplyDelta(calls=(ToolCallDelta(index, call_id, name),))


def argued(index: int, arguments: str) -> ReplyDelta:
    return ReplyDelta(calls=(ToolCallDelta(index, arguments=arguments),))


def test_case_e1_each_block_starts_gains_its_own_kind_and_stops_once(written):
    deltas = [
        ReplyDelta(reasoning="r"),
        ReplyDelta(content="Hi", calls=()),
        opened(0, "f", "c0"),
        argued(0, '{"x"'),
        argued(0, ":"),
        argued(0, "1}"),
        ReplyDelta(content=" done", calls=()),
    ]
    assert shape(written(*deltas)) == [
        ("start", 0, "thinking"), ("delta", 0, "thinking_delta", "r"), ("delta", 0, "signature_delta", "sig"),
        ("stop", 0),
        ("start", 1, "text"), ("delta", 1, "text_delta", "Hi"), ("stop", 1),
        ("start", 2, "tool_use"), ("delta", 2, "input_json_delta", '{"x"'), ("delta", 2, "input_json_delta", ":"),
        ("delta", 2, "input_json_delta", "1}"), ("stop", 2),
        ("start", 3, "text"), ("delta", 3, "text_delta", " done"), ("stop", 3),
    ]  # fmt: skip


def test_all_of_one_delta_comes_in_the_canonical_order(written):
    calls = (ToolCallDelta(0, "a", "f", "{}"), ToolCallDelta(1, "b", "g"), ToolCallDelta(1, arguments="{}"))
    assert [event for event in shape(written(ReplyDelta(0, "r", "t", calls))) if event[0] == "start"] == [
        ("start", 0, "thinking"), ("start", 1, "text"), ("start", 2, "tool_use"), ("start", 3, "tool_use"),
    ]  # fmt: skip


def test_what_shows_nothing_opens_no_block(written):
    assert written(ReplyDelta(), ReplyDelta(calls=())) == []


def test_thinking_that_the_client_does_not_want_to_see_is_a_signature_alone(written):
    events = written(ReplyDelta(reasoning="r"), ReplyDelta(reasoning="s"), thinking=ThinkingDisplay.OMITTED)
    assert shape(events) == [("start", 0, "thinking"), ("delta", 0, "signature_delta", "sig"), ("stop", 0)]


def test_a_call_without_arguments_has_an_empty_input(written):
    assert shape(written(opened(0, "f", "a"))) == [("start", 0, "tool_use"), ("stop", 0)]


def test_arguments_that_are_no_object_are_held_until_they_can_be_put_into_one(written):
    assert shape(written(opened(0, "f", "a"), argued(0, "[1,"), argued(0, "2]")))[1:] == [
        ("delta", 0, "input_json_delta", '{"__arguments__":"[1,2]"}'),
        ("stop", 0),
    ]


def test_arguments_of_a_call_that_is_not_open_are_a_bug(written):
    with pytest.raises(RuntimeError, match="another block"):
        written(opened(0, "f", "a"), ReplyDelta(content="x"), argued(0, "{}"))


def test_blocks_add_up_to_what_a_client_puts_together():
    writer = BlockWriter("sig", ThinkingDisplay.SHOWN)
    deltas = [
        ReplyDelta(reasoning="a"), ReplyDelta(reasoning="b", content="c"), opened(0, "f", "i"), argued(0, '{"x": '),
        argued(0, "1.0}"), opened(1, "g", "j"), ReplyDelta(content="d"),
    ]  # fmt: skip
    events = [event for delta in deltas for event in writer.gain(delta)] + writer.close()
    assert content_of(events) == [
        WireThinking("ab", "sig"),
        WireText("c"),
        WireToolUse("i", "f", msgspec.Raw(b'{"x": 1.0}')),
        WireToolUse("j", "g", msgspec.Raw(b"{}")),
        WireText("d"),
    ]


@pytest.mark.parametrize("arguments", ['{"x":1}', "", "no JSON"])
def test_the_block_of_a_call_that_is_whole_stops_before_anything_follows(arguments):
    writer = BlockWriter("sig", ThinkingDisplay.SHOWN)
    whole = (ToolCallDelta(0, "c0", "f"), ToolCallDelta(0, arguments=arguments, is_last=True))
    events = [msgspec.json.decode(msgspec.json.encode(event)) for event in writer.gain(ReplyDelta(calls=whole))]
    assert (events[0]["type"], events[-1]["type"]) == ("content_block_start", "content_block_stop")
    assert writer.close() == []
