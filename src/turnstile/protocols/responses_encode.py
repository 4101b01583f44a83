"""Responses answers, whole and streamed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

import msgspec

from turnstile.conversation import Answer, ReplyDelta
from turnstile.errors import TurnstileError
from turnstile.protocols.base import AnswerHead, Encoder
from turnstile.protocols.openai_error import error_body
from turnstile.protocols.responses_answer import WireResponse, begun, ended, failed, is_incomplete
from turnstile.protocols.responses_decode import AnswerForm, Delivery
from turnstile.protocols.responses_events import WireErrorEvent, WireEvent, WireResponseEvent
from turnstile.protocols.responses_output import Counter, Output
from turnstile.protocols.sse import MEDIA_TYPE, comment, json_event

_encoder = msgspec.json.Encoder()


def encoder_for(form: AnswerForm, head: AnswerHead) -> Encoder:
    """The encoder that answers as the request asked."""
    return WholeEncoder(form, head) if form.delivery is Delivery.WHOLE else StreamEncoder(form, head)


def _finished(output: Output, answer: Answer) -> Iterator[WireEvent]:
    """The events that end the items. An answer without text and calls gets an empty message: clients look for one."""
    if output.is_silent:
        yield from output.say("")
    yield from output.close("incomplete" if is_incomplete(answer) else "completed")


@final
class WholeEncoder:
    """Writes one Response object, all of it at the end; its items are those that a stream would have had."""

    media_type = "application/json"

    def __init__(self, form: AnswerForm, head: AnswerHead) -> None:
        """Answer one request in a form that it asked for."""
        self._response = begun(head, form.echo)
        self._output = Output(form, head.call_id, Counter())

    def feed(self, delta: ReplyDelta) -> bytes:
        """Nothing: the answer leaves whole."""
        for _ in self._output.feed(delta):
            pass
        return b""

    def finish(self, answer: Answer) -> bytes:
        """The whole body."""
        for _ in _finished(self._output, answer):
            pass
        return _encoder.encode(ended(self._response, self._output.items, answer))

    def fail(self, error: TurnstileError) -> bytes:
        """The error body: no byte of an answer can have left before."""
        return error_body(error)

    def keep_alive(self) -> bytes:
        """Nothing: this body is no stream."""
        return b""


@final
class StreamEncoder:
    """Writes the events of a response.

    Everything that an answer says must come through `feed`, what a parser held back until the end included: `finish`
    only closes. The first bytes leave with the first delta that shows anything, so an earlier failure can still have
    a status.
    """

    media_type = MEDIA_TYPE

    def __init__(self, form: AnswerForm, head: AnswerHead) -> None:
        """Answer one request in a form that it asked for."""
        self._response = begun(head, form.echo)
        self._count = Counter()
        self._output = Output(form, head.call_id, self._count)
        self._has_begun = False

    def feed(self, delta: ReplyDelta) -> bytes:
        """The events of one delta; empty if it shows nothing."""
        if not (delta.reasoning or delta.content or delta.calls):
            self._output.hold(delta.logprobs)
            return b""
        return self._written((*self._beginning(), *self._output.feed(delta)))

    def finish(self, answer: Answer) -> bytes:
        """The end of the last item and of the response."""
        events = [*self._beginning(), *_finished(self._output, answer)]
        response = ended(self._response, self._output.items, answer)
        return self._written([*events, self._state(f"response.{response.status}", response)])

    def fail(self, error: TurnstileError) -> bytes:
        """An error event and the failed response, with the items that were finished; no completed one follows.

        Source: Codex tries again on `response.failed`; `openai` hands both events on, and its stream helper has no
        final response then. Its helper wants `response.created` first, whatever comes.
        """
        events = [*self._beginning()]
        events.append(WireErrorEvent(error.code, str(error), error.param or None, self._count.next()))
        events.append(self._state("response.failed", failed(self._response, self._output.items, error)))
        return self._written(events)

    def keep_alive(self) -> bytes:
        """A comment, which every measured client of this dialect skips."""
        return comment("keep-alive")

    def _beginning(self) -> Iterator[WireEvent]:
        if not self._has_begun:
            self._has_begun = True
            yield self._state("response.created", self._response)
            yield self._state("response.in_progress", self._response)

    def _state(self, name: str, response: WireResponse) -> WireEvent:
        return WireResponseEvent(name, response, self._count.next())

    def _written(self, events: Iterable[WireEvent]) -> bytes:
        return b"".join(json_event(_encoder.encode(event), event.type) for event in events)
