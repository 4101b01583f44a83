"""The seam between a dialect's bytes and the one path.

A dialect turns a body into a `Call` and a way to answer it; the answer's `Encoder` alone knows whether the
client streams. An encoder that answers whole returns `b""` from `feed`. Nobody past `decode` asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from turnstile.conversation import Answer, Call, ReplyDelta
from turnstile.errors import TurnstileError


class AnswerHead(msgspec.Struct, frozen=True):
    """What an answer says about itself, whatever the dialect."""

    call_id: str
    created_s: int
    """Unix seconds."""
    model: str
    """The served model's name."""


def request_id(head: AnswerHead) -> str:
    """The id of a request, as headers and error events name it to clients."""
    return f"req_{head.call_id}"


class Severed(msgspec.Struct, frozen=True):
    """The connection is to break off: the dialect's clients take any proper end for a whole answer."""

    last_words: bytes
    """What may still be said before."""


class Encoder(Protocol):
    """Writes one answer. Calls come in this order: feed ... feed, then finish or fail, once."""

    @property
    def media_type(self) -> str:
        """Content type of the body."""
        ...

    def feed(self, delta: ReplyDelta) -> bytes:
        """Bytes that may leave now; empty if none."""
        ...

    def finish(self, answer: Answer) -> bytes:
        """The last bytes; they leave only after the turn is durable."""
        ...

    def fail(self, error: TurnstileError) -> bytes | Severed:
        """The dialect's error event, for a body whose first bytes have left; never a clean end."""
        ...

    def keep_alive(self) -> bytes:
        """Bytes that this dialect's clients ignore; empty if there are none or the body is not a stream."""
        ...


class WireRequest(msgspec.Struct, frozen=True):
    """A request as it came."""

    body: bytes
    headers: Mapping[str, str]
    """Names in lower case."""
    path: str = ""
    """The part behind the rollout, such as `/v1/chat/completions`."""
    query: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """What stands behind the path, decoded."""


class Decoded(msgspec.Struct, frozen=True):
    """A request that was understood."""

    call: Call
    answer_with: Callable[[AnswerHead], Encoder]


class CountQuestion(msgspec.Struct, frozen=True):
    """A question for a prompt's length that was understood; it is no call."""

    call: Call
    body_of: Callable[[int], bytes]
    """The answer's body (application/json) for a number of tokens."""


class TokenCounter(Protocol):
    """A dialect's way to ask how long a prompt is."""

    @property
    def paths(self) -> tuple[str, ...]:
        """Where it answers, behind the rollout's base URL; `{model}` stands for any model's name."""
        ...

    def decode(self, request: WireRequest) -> CountQuestion:
        """Understand a question.

        Raises: CallerError that names the field at fault and what to send instead.
        """
        ...

    def refuse(self, error: TurnstileError) -> bytes:
        """The body of an error answer (content type application/json), sent with `error.status`."""
        ...


class Dialect(Protocol):
    """One API that agents speak."""

    @property
    def name(self) -> str:
        """Name in records, such as `openai.chat`."""
        ...

    @property
    def paths(self) -> tuple[str, ...]:
        """Where it answers, behind the rollout's base URL; `{model}` stands for any model's name."""
        ...

    def decode(self, request: WireRequest) -> Decoded:
        """Understand a request.

        Raises: CallerError that names the field at fault and what to send instead.
        """
        ...

    def refuse(self, error: TurnstileError) -> bytes:
        """The body of an error answer (content type application/json), sent with `error.status`."""
        ...
