"""Chat completions answers, whole and streamed."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import final

import msgspec
from msgspec import UNSET, UnsetType

from turnstile.conversation import Answer, Reply, ReplyDelta, TokenLogprob, ToolCallDelta
from turnstile.errors import TurnstileError
from turnstile.protocols.base import AnswerHead, Encoder
from turnstile.protocols.chat_answer import (
    WireCall,
    WireCalled,
    WireChoice,
    WireChunk,
    WireChunkChoice,
    WireCompletion,
    WireDelta,
    WireLogprobs,
    WireUsage,
    finish_reason_of,
    logprobs_of,
    message_of,
    usage_of,
)
from turnstile.protocols.chat_decode import AnswerForm, CallForm, Delivery
from turnstile.protocols.openai_error import error_body
from turnstile.protocols.sse import MEDIA_TYPE, comment, json_event, word_event

_encoder = msgspec.json.Encoder()


def encoder_for(form: AnswerForm, head: AnswerHead) -> Encoder:
    """The encoder that answers as the request asked."""
    return WholeEncoder(form, head) if form.delivery is Delivery.WHOLE else StreamEncoder(form, head)


def _completion_id(head: AnswerHead) -> str:
    return f"chatcmpl-{head.call_id}"


@final
class WholeEncoder:
    """Writes one ChatCompletion object, all of it at the end."""

    media_type = "application/json"

    def __init__(self, form: AnswerForm, head: AnswerHead) -> None:
        """Answer one request in a form that it asked for."""
        self._form = form
        self._head = head

    def feed(self, delta: ReplyDelta) -> bytes:
        """Nothing: the answer leaves whole."""
        del delta
        return b""

    def finish(self, answer: Answer) -> bytes:
        """The whole body."""
        choices = [self._choice(index, reply) for index, reply in enumerate(answer.replies)]
        return _encoder.encode(
            WireCompletion(
                _completion_id(self._head), self._head.created_s, self._head.model, choices, usage_of(answer.usage)
            )
        )

    def fail(self, error: TurnstileError) -> bytes:
        """The error body: no byte of an answer can have left before."""
        return error_body(error)

    def keep_alive(self) -> bytes:
        """Nothing: this body is no stream."""
        return b""

    def _choice(self, index: int, reply: Reply) -> WireChoice:
        return WireChoice(
            index,
            message_of(reply.message, self._form.calls),
            finish_reason_of(reply, self._form.calls),
            logprobs_of(reply.logprobs, self._form.top_logprobs),
        )


class _Phase(enum.StrEnum):
    """How far a choice of a stream has got."""

    SILENT = "silent"
    SPEAKING = "speaking"
    ENDED = "ended"


class _Happening(enum.StrEnum):
    """What can happen to a choice of a stream."""

    GAINED = "gained"
    FINISHED = "finished"


_OPENS = WireDelta(role="assistant", content="")

# The protocol of a choice: what is written before the happening's own chunks, and the phase after it.
# What is not listed cannot happen.
_PROTOCOL: dict[tuple[_Phase, _Happening], tuple[tuple[WireDelta, ...], _Phase]] = {
    (_Phase.SILENT, _Happening.GAINED): ((_OPENS,), _Phase.SPEAKING),
    (_Phase.SILENT, _Happening.FINISHED): ((_OPENS,), _Phase.ENDED),
    (_Phase.SPEAKING, _Happening.GAINED): ((), _Phase.SPEAKING),
    (_Phase.SPEAKING, _Happening.FINISHED): ((), _Phase.ENDED),
}


@final
class StreamEncoder:
    """Writes ChatCompletionChunk events.

    Everything that a choice says must come through `feed`, what a parser held back until the end included:
    `finish` only closes. The first bytes leave with the first delta that shows anything, so an earlier failure
    can still have a status. Reasoning, content and calls of one delta become an event each, in this order, since
    some clients look at one member of an event only.
    """

    media_type = MEDIA_TYPE

    def __init__(self, form: AnswerForm, head: AnswerHead) -> None:
        """Answer one request in a form that it asked for."""
        self._form = form
        self._head = head
        self._id = _completion_id(head)
        self._phases: dict[int, _Phase] = {}
        self._usage: UnsetType | None = None if form.delivery is Delivery.STREAM_WITH_USAGE else UNSET

    def feed(self, delta: ReplyDelta) -> bytes:
        """The events of one delta; empty if it shows nothing.

        Raises: RuntimeError if the choice has ended.
        """
        gained = _gains(delta, self._form.calls)
        logprobs = self._logprobs(delta.logprobs)
        if not gained and logprobs is UNSET:
            return b""
        opening = self._advance(delta.choice, _Happening.GAINED)
        first, *rest = gained or (WireDelta(),)
        events = [self._chunk(delta.choice, wire) for wire in opening]
        events.append(self._chunk(delta.choice, first, logprobs))
        events.extend(self._chunk(delta.choice, wire) for wire in rest)
        return b"".join(events)

    def finish(self, answer: Answer) -> bytes:
        """Each choice's last event, usage if it was asked for, and the end mark.

        Raises: RuntimeError if the stream has ended.
        """
        events = [event for index, reply in enumerate(answer.replies) for event in self._ending(index, reply)]
        if self._form.delivery is Delivery.STREAM_WITH_USAGE:
            events.append(self._event([], usage_of(answer.usage)))
        return b"".join([*events, word_event("[DONE]")])

    def fail(self, error: TurnstileError) -> bytes:
        """The error event; no finish reason and no end mark follow.

        Source: the `openai` SDKs raise on an event with an `error` member, and take a body that merely ends for a
        whole answer.
        """
        return json_event(error_body(error))

    def keep_alive(self) -> bytes:
        """A comment, which every measured client of this dialect skips."""
        return comment("keep-alive")

    def _ending(self, index: int, reply: Reply) -> list[bytes]:
        opening = [self._chunk(index, wire) for wire in self._advance(index, _Happening.FINISHED)]
        reason = finish_reason_of(reply, self._form.calls)
        return [*opening, self._event([WireChunkChoice(index, WireDelta(), reason)], self._usage)]

    def _advance(self, choice: int, happening: _Happening) -> tuple[WireDelta, ...]:
        phase = self._phases.get(choice, _Phase.SILENT)
        if (phase, happening) not in _PROTOCOL:
            raise RuntimeError(f"choice {choice} is {phase}, so it cannot have {happening}")
        before, self._phases[choice] = _PROTOCOL[phase, happening]
        return before

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> WireLogprobs | UnsetType:
        return logprobs_of(tokens, self._form.top_logprobs) if tokens else UNSET

    def _chunk(self, choice: int, delta: WireDelta, logprobs: WireLogprobs | UnsetType = UNSET) -> bytes:
        return self._event([WireChunkChoice(choice, delta, None, logprobs)], self._usage)

    def _event(self, choices: list[WireChunkChoice], usage: WireUsage | UnsetType | None) -> bytes:
        head = self._head
        chunk = WireChunk(self._id, head.created_s, head.model, choices, usage)
        return json_event(_encoder.encode(chunk))


def _gains(delta: ReplyDelta, form: CallForm) -> list[WireDelta]:
    gained: list[WireDelta] = []
    if delta.reasoning:
        gained.append(WireDelta(reasoning_content=delta.reasoning))
    if delta.content:
        gained.append(WireDelta(content=delta.content))
    calls = [call for call in delta.calls if call.call_id or call.name or call.arguments]
    if not calls:
        return gained
    match form:
        case CallForm.TOOL_CALLS:
            gained.append(WireDelta(tool_calls=[_call(call) for call in calls]))
        case CallForm.FUNCTION_CALL:
            gained.extend(WireDelta(function_call=_called(call)) for call in calls if call.index == 0)
    return gained


def _call(delta: ToolCallDelta) -> WireCall:
    opens = bool(delta.call_id or delta.name)
    return WireCall(_called(delta), index=delta.index, id=delta.call_id or UNSET, type="function" if opens else UNSET)


def _called(delta: ToolCallDelta) -> WireCalled:
    return WireCalled(delta.name or UNSET, delta.arguments)
