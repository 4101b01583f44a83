"""The items of one Responses answer, as its deltas make them: the one source of what is streamed and what is whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, final

import msgspec
from msgspec import UNSET

from turnstile.conversation import JsonText, ReplyDelta, TokenLogprob, ToolCallDelta
from turnstile.protocols.chat_answer import WireTokenLogprob, logprobs_of
from turnstile.protocols.responses_answer import (
    WireCustomCallItem,
    WireFunctionCallItem,
    WireMessageItem,
    WireOutputItem,
    WireOutputText,
    WireReasoningItem,
    WireReasoningText,
    WireSummaryText,
)
from turnstile.protocols.responses_decode import AnswerForm, ReasoningForm, Sealing
from turnstile.protocols.responses_events import (
    WireArgumentsDone,
    WireCallDelta,
    WireEvent,
    WireInputDone,
    WireItemEvent,
    WirePartEvent,
    WireReasoningDelta,
    WireReasoningDone,
    WireSummaryDelta,
    WireSummaryDone,
    WireSummaryPartEvent,
    WireTextDelta,
    WireTextDone,
)
from turnstile.protocols.responses_ids import ItemId, ItemKind
from turnstile.protocols.responses_tools import HandedOut
from turnstile.protocols.signature import signature_of

_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"
_PART_ADDED = "response.content_part.added"
_PART_DONE = "response.content_part.done"


class _CustomArguments(msgspec.Struct, forbid_unknown_fields=True):
    """What a custom tool's function was asked to be called with: one member, `responses_tools.CUSTOM_INPUT`."""

    input: str


_custom_decoder = msgspec.json.Decoder(_CustomArguments)


class Counter:
    """Numbers the events of one stream."""

    def __init__(self) -> None:
        self._next = -1

    def next(self) -> int:
        """The number of the next event."""
        self._next += 1
        return self._next


class _Place(msgspec.Struct, frozen=True):
    """Where an item stands."""

    item_id: str
    output_index: int
    count: Counter


class _Open(Protocol):
    """An item that is being written."""

    def begin(self) -> Iterator[WireEvent]: ...

    def end(self, status: str) -> Iterator[WireEvent]: ...

    def item(self, status: str) -> WireOutputItem: ...


@final
class _Message:
    def __init__(self, place: _Place) -> None:
        self._place = place
        self._texts: list[str] = []
        self._logprobs: list[WireTokenLogprob] = []

    def item(self, status: str) -> WireMessageItem:
        return WireMessageItem(self._place.item_id, status, (self._part(),))

    def _part(self) -> WireOutputText:
        return WireOutputText("".join(self._texts), self._logprobs)

    def begin(self) -> Iterator[WireEvent]:
        place = self._place
        item = WireMessageItem(place.item_id, "in_progress")
        yield WireItemEvent(_ADDED, item, place.output_index, place.count.next())
        yield WirePartEvent(_PART_ADDED, place.item_id, place.output_index, WireOutputText(""), place.count.next())

    def gain(self, text: str, logprobs: Sequence[WireTokenLogprob]) -> WireEvent:
        place = self._place
        self._texts.append(text)
        self._logprobs += logprobs
        return WireTextDelta(place.item_id, place.output_index, text, place.count.next(), logprobs)

    def end(self, status: str) -> Iterator[WireEvent]:
        place, part = self._place, self._part()
        yield WireTextDone(place.item_id, place.output_index, part.text, place.count.next(), part.logprobs)
        yield WirePartEvent(_PART_DONE, place.item_id, place.output_index, part, place.count.next())
        yield WireItemEvent(_DONE, self.item(status), place.output_index, place.count.next())


@final
class _Reasoning:
    def __init__(self, place: _Place, form: ReasoningForm, seal: str) -> None:
        self._place = place
        self._form = form
        self._seal = seal or UNSET
        self._texts: list[str] = []

    def item(self, status: str) -> WireReasoningItem:
        text = "".join(self._texts)
        item_id = self._place.item_id
        if self._form is ReasoningForm.SUMMARY:
            summary = (WireSummaryText(text),)
            return WireReasoningItem(item_id, status, summary, encrypted_content=self._seal)
        return WireReasoningItem(item_id, status, (), (WireReasoningText(text),), self._seal)

    def begin(self) -> Iterator[WireEvent]:
        place = self._place
        item = WireReasoningItem(place.item_id, "in_progress", encrypted_content=self._seal)
        yield WireItemEvent(_ADDED, item, place.output_index, place.count.next())
        yield self._part_event("added", "")

    def gain(self, text: str) -> WireEvent:
        place = self._place
        self._texts.append(text)
        wire = WireSummaryDelta if self._form is ReasoningForm.SUMMARY else WireReasoningDelta
        return wire(place.item_id, place.output_index, text, place.count.next())

    def end(self, status: str) -> Iterator[WireEvent]:
        place, text = self._place, "".join(self._texts)
        done = WireSummaryDone if self._form is ReasoningForm.SUMMARY else WireReasoningDone
        yield done(place.item_id, place.output_index, text, place.count.next())
        yield self._part_event("done", text)
        yield WireItemEvent(_DONE, self.item(status), place.output_index, place.count.next())

    def _part_event(self, what: str, text: str) -> WireEvent:
        place = self._place
        if self._form is ReasoningForm.SUMMARY:
            name = f"response.reasoning_summary_part.{what}"
            part = WireSummaryText(text)
            return WireSummaryPartEvent(name, place.item_id, place.output_index, part, place.count.next())
        name = f"response.content_part.{what}"
        return WirePartEvent(name, place.item_id, place.output_index, WireReasoningText(text), place.count.next())


@final
class _FunctionCall:
    def __init__(self, place: _Place, call_id: str, tool: HandedOut) -> None:
        self._place = place
        self._call_id = call_id
        self._tool = tool
        self._arguments: list[str] = []

    def item(self, status: str) -> WireFunctionCallItem:
        tool, arguments = self._tool, "".join(self._arguments)
        namespace = tool.namespace or UNSET
        return WireFunctionCallItem(self._place.item_id, status, self._call_id, tool.name, arguments, namespace)

    def begin(self) -> Iterator[WireEvent]:
        place = self._place
        yield WireItemEvent(_ADDED, self.item("in_progress"), place.output_index, place.count.next())

    def gain(self, arguments: str) -> Iterator[WireEvent]:
        place = self._place
        self._arguments.append(arguments)
        name = "response.function_call_arguments.delta"
        yield WireCallDelta(name, place.item_id, place.output_index, arguments, place.count.next())

    def end(self, status: str) -> Iterator[WireEvent]:
        place, arguments = self._place, "".join(self._arguments)
        yield WireArgumentsDone(place.item_id, place.output_index, self._tool.name, arguments, place.count.next())
        yield WireItemEvent(_DONE, self.item(status), place.output_index, place.count.next())


@final
class _CustomCall:
    """Its input is a member of the model's arguments, so nothing can be told before they are whole."""

    def __init__(self, place: _Place, call_id: str, tool: HandedOut) -> None:
        self._place = place
        self._call_id = call_id
        self._tool = tool
        self._arguments: list[str] = []

    def item(self, status: str) -> WireCustomCallItem:
        return self._item(status, self._input())

    def _item(self, status: str, text: str) -> WireCustomCallItem:
        tool = self._tool
        return WireCustomCallItem(self._id(), status, self._call_id, tool.name, text, tool.namespace or UNSET)

    def _id(self) -> str:
        written = self._place.item_id
        is_object = custom_input("".join(self._arguments)) is not None
        return written if is_object else written.replace(ItemKind.CUSTOM_CALL, ItemKind.CUSTOM_CALL_AS_WRITTEN, 1)

    def _input(self) -> str:
        arguments = "".join(self._arguments)
        text = custom_input(arguments)
        return arguments if text is None else text

    def begin(self) -> Iterator[WireEvent]:
        yield from ()

    def gain(self, arguments: str) -> Iterator[WireEvent]:
        self._arguments.append(arguments)
        yield from ()

    def end(self, status: str) -> Iterator[WireEvent]:
        at, count, item_id, text = self._place.output_index, self._place.count, self._id(), self._input()
        yield WireItemEvent(_ADDED, self._item("in_progress", ""), at, count.next())
        yield WireCallDelta("response.custom_tool_call_input.delta", item_id, at, text, count.next())
        yield WireInputDone(item_id, at, text, count.next())
        yield WireItemEvent(_DONE, self.item(status), at, count.next())


def custom_input(arguments: JsonText) -> str | None:
    """The text that a custom tool is called with; None if the model did not write the object that was asked for."""
    try:
        return _custom_decoder.decode(arguments).input
    except (msgspec.DecodeError, RecursionError):
        return None


class Output:
    """All items of one answer. What a choice says becomes an item for each stretch of one kind, in order."""

    def __init__(self, form: AnswerForm, answer_id: str, count: Counter) -> None:
        """Begin an answer.

        Args:
            form: as the request asked.
            answer_id: what the items' ids are made of.
            count: numbers the events.
        """
        self._form = form
        self._answer_id = answer_id
        self._count = count
        self._open: _Open | None = None
        self._call_index = -1
        self._counts = {ItemKind.REASONING: 0, ItemKind.MESSAGE: 0, ItemKind.FUNCTION_CALL: 0}
        self._waiting: list[TokenLogprob] = []
        self.items: list[WireOutputItem] = []
        """Finished ones."""

    @property
    def is_silent(self) -> bool:
        """Whether there is neither text nor a call."""
        return not (self._counts[ItemKind.MESSAGE] or self._counts[ItemKind.FUNCTION_CALL])

    def hold(self, logprobs: Sequence[TokenLogprob]) -> None:
        """Keep log-probabilities for the text that they belong to: it may come later than they."""
        self._waiting += logprobs

    def feed(self, delta: ReplyDelta) -> Iterator[WireEvent]:
        """The events of one delta: reasoning, content and calls, in this order."""
        self.hold(delta.logprobs)
        if delta.reasoning:
            yield from self._reason(delta.reasoning)
        if delta.content:
            yield from self.say(delta.content)
        for call in delta.calls:
            yield from self._call(call)
        if delta.reasoning or delta.calls:
            # Only text has log-probabilities on this wire.
            self._waiting.clear()

    def close(self, status: str) -> Iterator[WireEvent]:
        """End the item that is being written, if there is one."""
        if self._open is not None:
            yield from self._open.end(status)
            self.items.append(self._open.item(status))
            self._open = None

    def _begin(self, item: _Open) -> Iterator[WireEvent]:
        yield from self.close("completed")
        self._open = item
        yield from item.begin()

    def _place(self, kind: ItemKind) -> _Place:
        counted = kind if kind in self._counts else ItemKind.FUNCTION_CALL
        at = self._counts[counted]
        self._counts[counted] += 1
        index = len(self.items) + (self._open is not None)
        return _Place(str(ItemId(self._answer_id, kind, at)), index, self._count)

    def _reason(self, text: str) -> Iterator[WireEvent]:
        if not isinstance(self._open, _Reasoning):
            place = self._place(ItemKind.REASONING)
            seal = signature_of(self._answer_id) if self._form.sealing is Sealing.MARKED else ""
            yield from self._begin(_Reasoning(place, self._form.reasoning, seal))
        assert isinstance(self._open, _Reasoning)
        yield self._open.gain(text)

    def say(self, text: str) -> Iterator[WireEvent]:
        """The events of some text, with the log-probabilities that have come since the text before."""
        if not isinstance(self._open, _Message):
            yield from self._begin(_Message(self._place(ItemKind.MESSAGE)))
        assert isinstance(self._open, _Message)
        shown = logprobs_of(self._waiting, self._form.top_logprobs)
        self._waiting.clear()
        yield self._open.gain(text, () if shown is UNSET else shown.content)

    def _call(self, delta: ToolCallDelta) -> Iterator[WireEvent]:
        is_open = isinstance(self._open, _FunctionCall | _CustomCall)
        if not is_open or delta.index != self._call_index:
            self._call_index = delta.index
            tool = self._form.tools.get(delta.name, HandedOut(delta.name))
            if tool.is_custom:
                yield from self._begin(_CustomCall(self._place(ItemKind.CUSTOM_CALL), delta.call_id, tool))
            else:
                yield from self._begin(_FunctionCall(self._place(ItemKind.FUNCTION_CALL), delta.call_id, tool))
        if delta.arguments:
            assert isinstance(self._open, _FunctionCall | _CustomCall)
            yield from self._open.gain(delta.arguments)
        if delta.is_last:
            yield from self.close("completed")
