"""Each event is one that the official SDK knows, with every member that it names."""

from __future__ import annotations

import json
from typing import get_args

import msgspec
import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from turnstile.protocols.base import AnswerHead
from turnstile.protocols.responses_answer import (
    WireCustomCallItem,
    WireFunctionCallItem,
    WireMessageItem,
    WireOutputText,
    WireReasoningItem,
    WireReasoningText,
    WireSummaryText,
    begun,
)
from turnstile.protocols.responses_events import (
    WireArgumentsDone,
    WireCallDelta,
    WireErrorEvent,
    WireEvent,
    WireInputDone,
    WireItemEvent,
    WirePartEvent,
    WireReasoningDelta,
    WireReasoningDone,
    WireResponseEvent,
    WireSummaryDelta,
    WireSummaryDone,
    WireSummaryPartEvent,
    WireTextDelta,
    WireTextDone,
)

ADAPTER: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
RESPONSE = begun(AnswerHead("r-c0", 7, "m"), {})
ADDED, DONE = "response.output_item.added", "response.output_item.done"
EVENTS: list[WireEvent] = [
    *(WireResponseEvent(f"response.{state}", RESPONSE, 0)
      for state in ("created", "in_progress", "completed", "incomplete", "failed")),
    WireItemEvent(ADDED, WireMessageItem("msg_r-c0-0", "in_progress"), 0, 1),
    WireItemEvent(DONE, WireMessageItem("msg_r-c0-0", "completed", (WireOutputText("x"),)), 0, 1),
    WireItemEvent(DONE, WireReasoningItem("rs_r-c0-0", "completed", (), (WireReasoningText("x"),), "e"), 0, 1),
    WireItemEvent(DONE, WireReasoningItem("rs_r-c0-0", "completed", (WireSummaryText("x"),)), 0, 1),
    WireItemEvent(DONE, WireFunctionCallItem("fc_r-c0-0", "completed", "c", "f", "{}", "n"), 0, 1),
    WireItemEvent(DONE, WireCustomCallItem("ctc_r-c0-0", "completed", "c", "f", "x"), 0, 1),
    WirePartEvent("response.content_part.added", "i", 0, WireOutputText(""), 1),
    WirePartEvent("response.content_part.done", "i", 0, WireReasoningText("x"), 1),
    WireSummaryPartEvent("response.reasoning_summary_part.added", "i", 0, WireSummaryText(""), 1),
    WireSummaryPartEvent("response.reasoning_summary_part.done", "i", 0, WireSummaryText("x"), 1),
    WireTextDelta("i", 0, "x", 1), WireTextDone("i", 0, "x", 1),
    WireReasoningDelta("i", 0, "x", 1), WireReasoningDone("i", 0, "x", 1),
    WireSummaryDelta("i", 0, "x", 1), WireSummaryDone("i", 0, "x", 1),
    WireCallDelta("response.function_call_arguments.delta", "i", 0, "x", 1),
    WireCallDelta("response.custom_tool_call_input.delta", "i", 0, "x", 1),
    WireArgumentsDone("i", 0, "f", "{}", 1), WireInputDone("i", 0, "x", 1),
    WireErrorEvent("engine_broken", "m", None, 1),
]  # fmt: skip


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_an_event_is_read_by_the_sdks_own_model(event: WireEvent):
    read = ADAPTER.validate_json(msgspec.json.encode(event), strict=True)
    assert (read.type, read.sequence_number) == (event.type, event.sequence_number)
    known = {type(read).model_fields[name].alias or name for name in type(read).model_fields}
    assert set(json.loads(msgspec.json.encode(event))) <= known | {"name"}


def test_every_kind_of_event_is_tried():
    assert {type(event) for event in EVENTS} == set(get_args(WireEvent))
