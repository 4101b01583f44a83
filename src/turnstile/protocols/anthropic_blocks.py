"""What an answer gains, as events of content blocks: each block starts, gains its own kind of delta, and stops once."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import TypeAlias, final

import msgspec

from turnstile.conversation import ReplyDelta, ToolCallDelta
from turnstile.protocols.anthropic_answer import (
    WireBlockDelta,
    WireBlockStart,
    WireBlockStop,
    WireContent,
    WireDelta,
    WireInputDelta,
    WireSignatureDelta,
    WireText,
    WireTextDelta,
    WireThinking,
    WireThinkingDelta,
    WireToolUse,
)
from turnstile.protocols.anthropic_decode import ThinkingDisplay
from turnstile.protocols.object_arguments import input_of

BlockEvent: TypeAlias = WireBlockStart | WireBlockDelta | WireBlockStop

_EMPTY_INPUT = msgspec.Raw(b"{}")


class _Kind(enum.StrEnum):
    """What the open block is."""

    NONE = "none"
    THINKING = "thinking"
    TEXT = "text"
    TOOL_USE = "tool_use"


@final
class BlockWriter:
    """The blocks of one answer. A block opens with the first thing that it shows, so none is empty but a call's."""

    def __init__(self, signature: str, thinking: ThinkingDisplay) -> None:
        """Begin before the first block.

        Args:
            signature: what every thinking block ends in.
            thinking: whether its text is shown.
        """
        self._signature = signature
        self._thinking = thinking
        self._open = _Kind.NONE
        self._index = -1
        self._call = -1
        self._odd: list[str] | None = None

    def gain(self, delta: ReplyDelta) -> list[BlockEvent]:
        """The events of one delta, in its order: reasoning, content, calls."""
        events: list[BlockEvent] = []
        if delta.reasoning:
            events += self._enter(_Kind.THINKING, WireThinking("", ""))
            if self._thinking is ThinkingDisplay.SHOWN:
                events.append(self._gained(WireThinkingDelta(delta.reasoning)))
        if delta.content:
            events += self._enter(_Kind.TEXT, WireText(""))
            events.append(self._gained(WireTextDelta(delta.content)))
        for call in delta.calls:
            events += self._called(call)
        return events

    def close(self) -> list[BlockEvent]:
        """End the open block, if there is one."""
        events: list[BlockEvent] = []
        match self._open:
            case _Kind.NONE:
                return events
            case _Kind.THINKING:
                events.append(self._gained(WireSignatureDelta(self._signature)))
            case _Kind.TOOL_USE if self._odd:
                events.append(self._gained(WireInputDelta(input_of("".join(self._odd)))))
            case _Kind.TEXT | _Kind.TOOL_USE:
                pass
        self._open = _Kind.NONE
        return [*events, WireBlockStop(self._index)]

    def _called(self, call: ToolCallDelta) -> list[BlockEvent]:
        events: list[BlockEvent] = []
        if call.call_id or call.name:
            events += self.close()
            events += self._enter(_Kind.TOOL_USE, WireToolUse(call.call_id, call.name, _EMPTY_INPUT))
            self._call, self._odd = call.index, None
        if call.arguments:
            if self._open is not _Kind.TOOL_USE or call.index != self._call:
                raise RuntimeError(f"arguments of call {call.index} came while another block was open")
            events += self._argued(call.arguments)
        return [*events, *self.close()] if call.is_last else events

    def _argued(self, arguments: str) -> list[BlockEvent]:
        """Input leaves as it comes, unless it is no JSON object: then it has to be whole to be put into one."""
        if self._odd is None:
            self._odd = [] if arguments.lstrip().startswith("{") else [arguments]
        elif self._odd:
            self._odd.append(arguments)
        return [] if self._odd else [self._gained(WireInputDelta(arguments))]

    def _enter(self, kind: _Kind, block: WireContent) -> list[BlockEvent]:
        if self._open is kind:
            return []
        events = self.close()
        self._open = kind
        self._index += 1
        return [*events, WireBlockStart(self._index, block)]

    def _gained(self, delta: WireDelta) -> BlockEvent:
        return WireBlockDelta(self._index, delta)


def content_of(events: Iterable[BlockEvent]) -> list[WireContent]:
    """The blocks that events add up to, as a client of the stream puts them together."""
    content: list[WireContent] = []
    deltas: list[WireDelta] = []
    for event in events:
        match event:
            case WireBlockStart(content_block=block):
                content.append(block)
                deltas = []
            case WireBlockDelta(delta=delta):
                deltas.append(delta)
            case WireBlockStop():
                content[-1] = _whole(content[-1], deltas)
    return content


def _whole(block: WireContent, deltas: Sequence[WireDelta]) -> WireContent:
    match block:
        case WireText():
            return WireText("".join(delta.text for delta in deltas if isinstance(delta, WireTextDelta)))
        case WireThinking():
            return WireThinking(
                "".join(delta.thinking for delta in deltas if isinstance(delta, WireThinkingDelta)),
                "".join(delta.signature for delta in deltas if isinstance(delta, WireSignatureDelta)),
            )
        case WireToolUse():
            written = "".join(delta.partial_json for delta in deltas if isinstance(delta, WireInputDelta))
            return WireToolUse(block.id, block.name, msgspec.Raw(input_of(written).encode()))
