"""Events of a Responses stream as they stand on the wire; `type` is the event's name.

Source: OpenAI's API reference as of the `openai` package 3.57.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from turnstile.protocols.chat_answer import WireTokenLogprob
from turnstile.protocols.responses_answer import WireContent, WireOutputItem, WireResponse, WireSummaryText


class WireResponseEvent(msgspec.Struct, frozen=True):
    """The response has come to a new state."""

    type: str
    response: WireResponse
    sequence_number: int


class WireItemEvent(msgspec.Struct, frozen=True):
    """An item began or ended."""

    type: str
    item: WireOutputItem
    output_index: int
    sequence_number: int


class WirePartEvent(msgspec.Struct, frozen=True):
    """A part of an item began or ended."""

    type: str
    item_id: str
    output_index: int
    part: WireContent
    sequence_number: int
    content_index: int = 0


class WireSummaryPartEvent(msgspec.Struct, frozen=True):
    """A part of a reasoning summary began or ended."""

    type: str
    item_id: str
    output_index: int
    part: WireSummaryText
    sequence_number: int
    summary_index: int = 0


class WireTextDelta(msgspec.Struct, frozen=True):
    """Text came."""

    item_id: str
    output_index: int
    delta: str
    sequence_number: int
    logprobs: Sequence[WireTokenLogprob] = ()
    content_index: int = 0
    type: str = "response.output_text.delta"


class WireTextDone(msgspec.Struct, frozen=True):
    """A text is whole."""

    item_id: str
    output_index: int
    text: str
    sequence_number: int
    logprobs: Sequence[WireTokenLogprob] = ()
    content_index: int = 0
    type: str = "response.output_text.done"


class WireReasoningDelta(msgspec.Struct, frozen=True):
    """Reasoning came."""

    item_id: str
    output_index: int
    delta: str
    sequence_number: int
    content_index: int = 0
    type: str = "response.reasoning_text.delta"


class WireReasoningDone(msgspec.Struct, frozen=True):
    """Reasoning is whole."""

    item_id: str
    output_index: int
    text: str
    sequence_number: int
    content_index: int = 0
    type: str = "response.reasoning_text.done"


class WireSummaryDelta(msgspec.Struct, frozen=True):
    """Reasoning came, for a client that asked for a summary."""

    item_id: str
    output_index: int
    delta: str
    sequence_number: int
    summary_index: int = 0
    type: str = "response.reasoning_summary_text.delta"


class WireSummaryDone(msgspec.Struct, frozen=True):
    """Reasoning is whole, for a client that asked for a summary."""

    item_id: str
    output_index: int
    text: str
    sequence_number: int
    summary_index: int = 0
    type: str = "response.reasoning_summary_text.done"


class WireCallDelta(msgspec.Struct, frozen=True):
    """Arguments of a call, or the input of a custom one, came."""

    type: str
    item_id: str
    output_index: int
    delta: str
    sequence_number: int


class WireArgumentsDone(msgspec.Struct, frozen=True):
    """A call's arguments are whole."""

    item_id: str
    output_index: int
    name: str
    arguments: str
    sequence_number: int
    type: str = "response.function_call_arguments.done"


class WireInputDone(msgspec.Struct, frozen=True):
    """A custom call's input is whole."""

    item_id: str
    output_index: int
    input: str
    sequence_number: int
    type: str = "response.custom_tool_call_input.done"


class WireErrorEvent(msgspec.Struct, frozen=True):
    """The answer broke off."""

    code: str
    message: str
    param: str | None
    sequence_number: int
    type: str = "error"


WireEvent: TypeAlias = (
    WireResponseEvent
    | WireItemEvent
    | WirePartEvent
    | WireSummaryPartEvent
    | WireTextDelta
    | WireTextDone
    | WireReasoningDelta
    | WireReasoningDone
    | WireSummaryDelta
    | WireSummaryDone
    | WireCallDelta
    | WireArgumentsDone
    | WireInputDone
    | WireErrorEvent
)
