"""Anthropic Messages answers, whole and streamed."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import final

import msgspec

from turnstile.conversation import Answer, ReplyDelta
from turnstile.errors import TurnstileError
from turnstile.protocols.anthropic_answer import (
    WireAnswer,
    WireEvent,
    WireMessageDelta,
    WireMessageStart,
    WireMessageStop,
    WirePing,
    WireUsage,
    stop_of,
    usage_of,
)
from turnstile.protocols.anthropic_blocks import BlockEvent, BlockWriter, content_of
from turnstile.protocols.anthropic_decode import AnswerForm, Delivery
from turnstile.protocols.anthropic_error import error_body
from turnstile.protocols.base import AnswerHead, Encoder, request_id
from turnstile.protocols.signature import signature_of
from turnstile.protocols.sse import MEDIA_TYPE, json_event

_encoder = msgspec.json.Encoder()


def encoder_for(form: AnswerForm, head: AnswerHead) -> Encoder:
    """The encoder that answers as the request asked."""
    return WholeEncoder(form, head) if form.delivery is Delivery.WHOLE else StreamEncoder(form, head)


def _writer(form: AnswerForm, head: AnswerHead) -> BlockWriter:
    return BlockWriter(signature_of(head.call_id), form.thinking)


def _message_id(head: AnswerHead) -> str:
    return f"msg_{head.call_id}"


@final
class WholeEncoder:
    """Writes one message, all of it at the end, with the blocks that a stream would have had."""

    media_type = "application/json"

    def __init__(self, form: AnswerForm, head: AnswerHead) -> None:
        """Answer one request in a form that it asked for."""
        self._head = head
        self._blocks = _writer(form, head)
        self._events: list[BlockEvent] = []

    def feed(self, delta: ReplyDelta) -> bytes:
        """Nothing: the answer leaves whole."""
        self._events += self._blocks.gain(delta)
        return b""

    def finish(self, answer: Answer) -> bytes:
        """The whole body."""
        self._events += self._blocks.close()
        stop = stop_of(answer.replies[0])
        return _encoder.encode(
            WireAnswer(
                id=_message_id(self._head),
                model=self._head.model,
                content=content_of(self._events),
                stop_reason=stop.stop_reason,
                stop_sequence=stop.stop_sequence,
                usage=usage_of(answer.usage),
            )
        )

    def fail(self, error: TurnstileError) -> bytes:
        """The error body: no byte of an answer can have left before."""
        return error_body(error, request_id(self._head))

    def keep_alive(self) -> bytes:
        """Nothing: this body is no stream."""
        return b""


class _Phase(enum.StrEnum):
    """How far a stream has got."""

    SILENT = "silent"
    SPEAKING = "speaking"
    ENDED = "ended"


@final
class StreamEncoder:
    """Writes the events of one message.

    Everything that the answer says must come through `feed`; `finish` only closes. The first bytes leave with the
    first delta that shows anything, so an earlier failure can still have a status. The prompt's length is known at
    the end only: `message_start` says 0, and the counts of `message_delta`, which replace it, are whole.
    """

    media_type = MEDIA_TYPE

    def __init__(self, form: AnswerForm, head: AnswerHead) -> None:
        """Answer one request in a form that it asked for."""
        self._head = head
        self._blocks = _writer(form, head)
        self._phase = _Phase.SILENT

    def feed(self, delta: ReplyDelta) -> bytes:
        """The events of one delta; empty if it shows nothing.

        Raises: RuntimeError if the stream has ended.
        """
        events = self._blocks.gain(delta)
        return _written([*self._opening(), *events]) if events else b""

    def finish(self, answer: Answer) -> bytes:
        """The end of the open block, of the message, and of the stream.

        Raises: RuntimeError if the stream has ended.
        """
        opening = self._opening()
        self._phase = _Phase.ENDED
        ending = WireMessageDelta(stop_of(answer.replies[0]), usage_of(answer.usage))
        return _written([*opening, *self._blocks.close(), ending, WireMessageStop()])

    def fail(self, error: TurnstileError) -> bytes:
        """The error event; the message gets no end.

        Source: the `anthropic` SDK raises on it, and takes a stream that merely ends for a whole answer; Claude Code
        sends its request again.
        """
        self._phase = _Phase.ENDED
        return json_event(error_body(error, request_id(self._head)), "error")

    def keep_alive(self) -> bytes:
        """A ping, behind the beginning of the message: no event comes before that.

        Raises: RuntimeError if the stream has ended.
        """
        return _written([*self._opening(), WirePing()])

    def _opening(self) -> list[WireEvent]:
        match self._phase:
            case _Phase.SPEAKING:
                return []
            case _Phase.ENDED:
                raise RuntimeError("the stream has ended")
            case _Phase.SILENT:
                self._phase = _Phase.SPEAKING
                head = self._head
                empty = WireAnswer(_message_id(head), head.model, [], None, None, WireUsage(0, 0))
                return [WireMessageStart(empty)]


def _written(events: Sequence[WireEvent]) -> bytes:
    return b"".join(json_event(_encoder.encode(event), str(event.__struct_config__.tag)) for event in events)
