"""The items of one answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from turnstile.conversation import ReplyDelta, TokenLogprob, ToolCallDelta
from turnstile.protocols.responses_decode import AnswerForm, ReasoningForm, Sealing
from turnstile.protocols.responses_output import Counter, Output, custom_input
from turnstile.protocols.responses_tools import CUSTOM_INPUT, HandedOut
from turnstile.protocols.signature import answer_named_by

CALL = (ToolCallDelta(0, "call_1", "ls"), ToolCallDelta(0, arguments='{"p":'), ToolCallDelta(0, arguments=" 1}"))


def told(form: AnswerForm, *deltas: ReplyDelta) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Items and events of an answer, closed."""
    output = Output(form, "r-c0", Counter())
    events = [event for delta in deltas for event in output.feed(delta)]
    events += output.close("completed")
    return json.loads(msgspec.json.encode(output.items)), json.loads(msgspec.json.encode(events))


def test_each_stretch_of_a_kind_is_an_item_with_an_id_of_its_own():
    items, _ = told(
        AnswerForm(), ReplyDelta(reasoning="R"), ReplyDelta(content="a"), ReplyDelta(content="b", calls=CALL),
        ReplyDelta(reasoning="S", content="c"),
    )  # fmt: skip
    assert [item["id"] for item in items] == [
        "rs_r-c0-0", "msg_r-c0-0", "fc_r-c0-0", "rs_r-c0-1", "msg_r-c0-1",
    ]  # fmt: skip
    assert [item["content"][0]["text"] for item in items if "content" in item] == ["R", "ab", "S", "c"]
    assert items[2]["arguments"] == '{"p": 1}'


def test_events_are_numbered_in_order_and_items_by_place():
    _, events = told(AnswerForm(), ReplyDelta(reasoning="R", content="a", calls=CALL))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    added = [event["output_index"] for event in events if event["type"].endswith("item.added")]
    assert added == [0, 1, 2]


def test_pieces_add_up_to_what_is_done():
    _, events = told(AnswerForm(), ReplyDelta(content="a"), ReplyDelta(content="b"), ReplyDelta(calls=CALL))
    deltas = [event["delta"] for event in events if event["type"].endswith("arguments.delta")]
    (done,) = [event["arguments"] for event in events if event["type"].endswith("arguments.done")]
    assert "".join(deltas) == done
    assert [event["text"] for event in events if event["type"].endswith("text.done")] == ["ab"]


def test_reasoning_is_a_summary_where_one_was_asked_for_and_carries_a_mark():
    form = AnswerForm(reasoning=ReasoningForm.SUMMARY, sealing=Sealing.MARKED)
    (item,), events = told(form, ReplyDelta(reasoning="R"))
    assert (item["summary"], "content" in item) == ([{"text": "R", "type": "summary_text"}], False)
    assert answer_named_by(item["encrypted_content"]) == "r-c0"
    assert [event["type"].removeprefix("response.") for event in events] == [
        "output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta",
        "reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [('{"input": "a\\n"}', "ctc", "a\n"), ('{"text": 1}', "ctcw", '{"text": 1}'), ("no JSON", "ctcw", "no JSON")],
)
def test_a_custom_call_is_told_when_it_is_whole(arguments: str, kind: str, text: str):
    form = AnswerForm(tools={"n__p": HandedOut("p", "n", is_custom=True)})
    pieces = (ToolCallDelta(0, "c", "n__p"), ToolCallDelta(0, arguments=arguments))
    (item,), events = told(form, ReplyDelta(calls=pieces))
    assert item == {
        "id": f"{kind}_r-c0-0", "status": "completed", "call_id": "c", "name": "p", "input": text, "namespace": "n",
        "type": "custom_tool_call",
    }  # fmt: skip
    assert [event["type"].removeprefix("response.") for event in events] == [
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
    ]  # fmt: skip


def test_calls_one_behind_the_other_are_items_of_their_own():
    both = tuple(ToolCallDelta(at, f"call_{at}", "ls", "{}") for at in range(2))
    items, _ = told(AnswerForm(), ReplyDelta(calls=both))
    assert [(item["id"], item["call_id"]) for item in items] == [("fc_r-c0-0", "call_0"), ("fc_r-c0-1", "call_1")]


def test_text_has_the_log_probabilities_that_came_since_the_text_before():
    form = AnswerForm(top_logprobs=0)
    one, two, three = (TokenLogprob(letter, -1.0) for letter in (b"r", b"a", b"b"))
    output = Output(form, "r-c0", Counter())
    events = [*output.feed(ReplyDelta(reasoning="r", logprobs=(one,)))]
    output.hold((two,))
    events += output.feed(ReplyDelta(content="ab", logprobs=(three,)))
    (delta,) = [event for event in msgspec.to_builtins(events) if event["type"] == "response.output_text.delta"]
    assert [each["token"] for each in delta["logprobs"]] == ["a", "b"]


def test_the_input_of_a_custom_call_is_the_one_member_that_was_asked_for():
    assert custom_input(f'{{"{CUSTOM_INPUT}": "x"}}') == "x"
    assert [custom_input(each) for each in ("", "[]", '{"input": 1}', '{"input": "x", "more": 1}')] == [None] * 4


def test_a_call_that_is_whole_is_told_to_be_done_before_anything_follows():
    output = Output(AnswerForm(), "r-c0", Counter())
    call = ReplyDelta(calls=(*CALL[:2], ToolCallDelta(0, arguments=" 1}", is_last=True)))
    events = [msgspec.json.decode(msgspec.json.encode(event)) for event in output.feed(call)]
    assert [event["type"].removeprefix("response.") for event in events][-2:] == [
        "function_call_arguments.done", "output_item.done",
    ]  # fmt: skip
    assert (len(output.items), list(output.close("incomplete"))) == (1, [])
