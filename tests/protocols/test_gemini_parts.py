from __future__ import annotations

import pytest
from msgspec import Raw

from turnstile.conversation import ReplyDelta, ToolCallDelta
from turnstile.protocols.gemini_answer import WireCalled, WirePart
from turnstile.protocols.gemini_decode import ThoughtDisplay
from turnstile.protocols.gemini_parts import PartWriter, merged


def parts(*deltas, thoughts=ThoughtDisplay.SHOWN):
    writer = PartWriter("sig", thoughts)
    return [*(writer.gain(delta) for delta in deltas), writer.close()]


def called(call_id, name, args):
    return WirePart(function_call=WireCalled(call_id, name, Raw(args)), thought_signature="sig")


def test_the_first_thought_carries_the_mark():
    assert parts(ReplyDelta(reasoning="a"), ReplyDelta(reasoning="b", content="c")) == [
        [WirePart(text="a", thought=True, thought_signature="sig")],
        [WirePart(text="b", thought=True), WirePart(text="c")],
        [],
    ]


def test_thoughts_that_were_not_asked_for_are_not_told():
    assert parts(ReplyDelta(reasoning="a", content="c"), thoughts=ThoughtDisplay.HIDDEN) == [[WirePart(text="c")], []]


def test_a_call_leaves_when_it_is_whole():
    begun = ReplyDelta(calls=(ToolCallDelta(0, "i", "f", '{"x"'),))
    more = ReplyDelta(calls=(ToolCallDelta(0, arguments=": 1}"),))
    second = ReplyDelta(calls=(ToolCallDelta(1, "j", "g"),))
    f, g = called("i", "f", b'{"x": 1}'), called("j", "g", b"{}")
    assert parts(begun, more, second) == [[], [], [f], [g]]
    assert parts(begun, more, ReplyDelta(content="t")) == [[], [], [f, WirePart(text="t")], []]
    last = ReplyDelta(calls=(ToolCallDelta(0, arguments=": 1}", is_last=True),))
    assert parts(begun, last, second) == [[], [f], [], [g]]


def test_arguments_that_are_no_object_travel_inside_one():
    assert parts(ReplyDelta(calls=(ToolCallDelta(0, "i", "f", "3", is_last=True),)))[0] == [
        called("i", "f", b'{"__arguments__":"3"}')
    ]


def test_arguments_of_another_call_are_a_bug():
    with pytest.raises(RuntimeError):
        parts(ReplyDelta(calls=(ToolCallDelta(1, arguments="{}"),)))


def test_neighbours_of_one_kind_are_one_part():
    thought = WirePart(text="a", thought=True, thought_signature="sig")
    call = called("i", "f", b"{}")
    assert merged([thought, WirePart(text="b", thought=True), WirePart(text="c"), WirePart(text="d"), call, call]) == [
        WirePart(text="ab", thought=True, thought_signature="sig"), WirePart(text="cd"), call, call,
    ]  # fmt: skip
    assert merged([]) == []
