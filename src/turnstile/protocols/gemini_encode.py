"""Gemini answers: whole, as server-sent events, and as a JSON array that grows."""

from __future__ import annotations

import enum
from typing import final

import msgspec
from msgspec import UNSET, UnsetType

from turnstile.conversation import Answer, Reply, ReplyDelta, TokenLogprob
from turnstile.errors import TurnstileError
from turnstile.protocols.base import AnswerHead, Encoder, Severed
from turnstile.protocols.gemini_answer import (
    WireAnswer,
    WireCandidate,
    WireContent,
    WirePart,
    WireUsage,
    finish_reason_of,
    logprobs_of,
    usage_of,
)
from turnstile.protocols.gemini_decode import AnswerForm, Delivery
from turnstile.protocols.gemini_error import error_body
from turnstile.protocols.gemini_parts import NOTHING, PartWriter, merged
from turnstile.protocols.signature import signature_of
from turnstile.protocols.sse import MEDIA_TYPE, json_event

_JSON = "application/json"
_BLANK_LINE = b"\n"

_encoder = msgspec.json.Encoder()


def encoder_for(form: AnswerForm, head: AnswerHead) -> Encoder:
    """The encoder that answers as the request asked."""
    return WholeEncoder(form, head) if form.delivery is Delivery.WHOLE else StreamEncoder(form, head)


@final
class _Candidate:
    """What one candidate has said and not yet sent."""

    def __init__(self, form: AnswerForm, head: AnswerHead, choice: int) -> None:
        named = head.call_id if choice == 0 else f"{head.call_id}.{choice}"
        self.parts = PartWriter(signature_of(named), form.thoughts)
        self.tokens: list[TokenLogprob] = []


@final
class _Candidates:
    """All candidates of one answer."""

    def __init__(self, form: AnswerForm, head: AnswerHead) -> None:
        self._form = form
        self._head = head
        self._candidates: dict[int, _Candidate] = {}

    def gain(self, delta: ReplyDelta) -> list[WirePart]:
        """What a delta shows; its log-probabilities wait for the next part that leaves."""
        candidate = self._of(delta.choice)
        candidate.tokens += delta.logprobs
        return candidate.parts.gain(delta)

    def close(self, choice: int) -> list[WirePart]:
        """What a candidate has left to say."""
        return self._of(choice).parts.close()

    def wire(self, choice: int, parts: list[WirePart], finish: str | UnsetType) -> WireCandidate:
        """A candidate on the wire, with the log-probabilities that have waited."""
        candidate = self._of(choice)
        tokens, candidate.tokens = candidate.tokens, []
        logprobs = logprobs_of(tokens, self._form.top_logprobs)
        return WireCandidate(WireContent(parts or [NOTHING]), choice, finish, logprobs)

    def answer(self, candidates: list[WireCandidate], usage: WireUsage | UnsetType) -> WireAnswer:
        """An answer, or a chunk of one, of some candidates."""
        return WireAnswer(candidates, self._head.model, self._head.call_id, usage)

    def _of(self, choice: int) -> _Candidate:
        if choice not in self._candidates:
            self._candidates[choice] = _Candidate(self._form, self._head, choice)
        return self._candidates[choice]


@final
class WholeEncoder:
    """Writes one GenerateContentResponse, all of it at the end, with the parts that a stream would have had."""

    media_type = _JSON

    def __init__(self, form: AnswerForm, head: AnswerHead) -> None:
        """Answer one request in a form that it asked for."""
        self._candidates = _Candidates(form, head)
        self._parts: dict[int, list[WirePart]] = {}

    def feed(self, delta: ReplyDelta) -> bytes:
        """Nothing: the answer leaves whole."""
        self._parts.setdefault(delta.choice, []).extend(self._candidates.gain(delta))
        return b""

    def finish(self, answer: Answer) -> bytes:
        """The whole body."""
        candidates = [self._candidate(choice, reply) for choice, reply in enumerate(answer.replies)]
        return _encoder.encode(self._candidates.answer(candidates, usage_of(answer.usage)))

    def fail(self, error: TurnstileError) -> bytes:
        """The error body: no byte of an answer can have left before."""
        return error_body(error)

    def keep_alive(self) -> bytes:
        """Nothing: this body is no stream."""
        return b""

    def _candidate(self, choice: int, reply: Reply) -> WireCandidate:
        parts = merged([*self._parts.get(choice, []), *self._candidates.close(choice)])
        return self._candidates.wire(choice, parts, finish_reason_of(reply.finish))


class _Phase(enum.StrEnum):
    """How far a stream has got."""

    SILENT = "silent"
    SPEAKING = "speaking"
    ENDED = "ended"


@final
class StreamEncoder:
    """Writes GenerateContentResponse chunks.

    Everything that the answer says must come through `feed`; `finish` only closes. The first bytes leave with the
    first delta that shows anything, so an earlier failure can still have a status. The last chunk has the usage.
    """

    def __init__(self, form: AnswerForm, head: AnswerHead) -> None:
        """Answer one request in a form that it asked for."""
        self._delivery = form.delivery
        self._candidates = _Candidates(form, head)
        self._phase = _Phase.SILENT

    @property
    def media_type(self) -> str:
        """Content type of the body."""
        return MEDIA_TYPE if self._delivery is Delivery.EVENTS else _JSON

    def feed(self, delta: ReplyDelta) -> bytes:
        """The chunk of one delta; empty if it shows nothing.

        Raises: RuntimeError if the stream has ended.
        """
        parts = self._candidates.gain(delta)
        if not parts:
            return b""
        gained = self._candidates.wire(delta.choice, parts, UNSET)
        return self._chunk(self._candidates.answer([gained], UNSET))

    def finish(self, answer: Answer) -> bytes:
        """Each candidate's last chunk, the usage, and the end of the body.

        Raises: RuntimeError if the stream has ended.
        """
        last = len(answer.replies) - 1
        chunks: list[bytes] = []
        for choice, reply in enumerate(answer.replies):
            parts = self._candidates.close(choice)
            ended = self._candidates.wire(choice, parts, finish_reason_of(reply.finish))
            usage = usage_of(answer.usage) if choice == last else UNSET
            chunks.append(self._chunk(self._candidates.answer([ended], usage)))
        self._phase = _Phase.ENDED
        return b"".join([*chunks, b"]" if self._delivery is Delivery.ARRAY else b""])

    def fail(self, error: TurnstileError) -> Severed:
        """The bare error, and no end: the connection breaks off.

        Source: gemini-cli 0.61 takes what came before an error event, and before a body's proper end, for the whole
        answer. At an error that is no event, and comes in one piece, it sends its request again; at a connection that
        breaks without one its run fails. `google-genai` 3.6 raises when the connection breaks.
        """
        self._phase = _Phase.ENDED
        return Severed(error_body(error) + b"\n")

    def keep_alive(self) -> bytes:
        """A blank line, which is nothing between events, and nothing between the elements of an array.

        Source: `@google/genai` 1.30, which gemini-cli contains, fails on comments; it and `google-genai` 3.6 skip
        blanks between events.
        """
        return _BLANK_LINE

    def _chunk(self, answer: WireAnswer) -> bytes:
        if self._phase is _Phase.ENDED:
            raise RuntimeError("the stream has ended")
        payload = _encoder.encode(answer)
        opening = b"[" if self._phase is _Phase.SILENT else b",\n"
        self._phase = _Phase.SPEAKING
        return json_event(payload) if self._delivery is Delivery.EVENTS else opening + payload
