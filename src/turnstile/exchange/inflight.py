"""Who waits for which call, and when a repeated request is a retry.

A call runs on its own; clients follow it. So a client that hangs up does not decide what is sampled, a retry
joins what already runs, and an answer that never arrived can be handed out again (docs/decisions/0006).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator

from turnstile.conversation import Answer, Call, ReplyDelta, ToolCallDelta
from turnstile.errors import CallerError, TurnstileError
from turnstile.generation import History


class Flight:
    """One call from take-off to landing, and the clients that follow it.

    Told by the one task that runs the call; followed by any number of clients, each from the first delta on.
    """

    def __init__(self, digest: str, idempotency_key: str, call_id: str) -> None:
        self.digest = digest
        self.idempotency_key = idempotency_key
        self.call_id = call_id
        self.history: History | None = None
        """Known once the prompt is planned."""
        self.delivered = False
        """Whether the last byte of the answer left to a client that was still there."""
        self.task: asyncio.Task[None] | None = None
        self._deltas: list[ReplyDelta] = []
        self._outcome: Answer | TurnstileError | None = None
        self._followers: set[Follower] = set()

    @property
    def waiting(self) -> int:
        """How many clients follow it now."""
        return len(self._followers)

    @property
    def outcome(self) -> Answer | TurnstileError | None:
        """The whole answer, the error that ended it, or None while it runs."""
        return self._outcome

    def tell(self, delta: ReplyDelta) -> None:
        """Hand a delta to all who follow, now or later."""
        if not delta.is_empty:
            self._deltas.append(delta)
            self._wake()

    def land(self, outcome: Answer | TurnstileError) -> None:
        """End the call; the first outcome counts."""
        if self._outcome is None:
            self._outcome = outcome
            self._wake()

    def _wake(self) -> None:
        for follower in self._followers:
            follower.wake()

    def join(self) -> Follower:
        """Begin to follow; the client counts as waiting until it leaves."""
        follower = Follower(self, self._deltas, self._followers)
        self._followers.add(follower)
        return follower


class Follower:
    """One client that waits for a flight."""

    def __init__(self, flight: Flight, deltas: list[ReplyDelta], among: set[Follower]) -> None:
        self._flight = flight
        self._deltas = deltas
        self._among = among
        self._news = asyncio.Event()

    @property
    def left(self) -> bool:
        """Whether it waits no more."""
        return self not in self._among

    def wake(self) -> None:
        """There is something new."""
        self._news.set()

    def leave(self) -> None:
        """Wait no more; `deltas` ends."""
        self._among.discard(self)
        self._news.set()

    async def deltas(self, silence_s: float) -> AsyncIterator[ReplyDelta | None]:
        """Every delta from the flight's first on; None after each silence of `silence_s` seconds.

        Ends when the flight has landed or the follower has left.
        """
        told = 0
        while not self.left:
            self._news.clear()
            while told < len(self._deltas):
                told += 1
                yield self._deltas[told - 1]
            if self._flight.outcome is not None:
                return
            try:
                async with asyncio.timeout(silence_s):
                    await self._news.wait()
            except TimeoutError:
                yield None


def landed(digest: str, call_id: str, answer: Answer) -> Flight:
    """A flight that has ended with this answer, as a restart finds it in the journal."""
    flight = Flight(digest, "", call_id)
    for choice, reply in enumerate(answer.replies):
        calls = tuple(
            ToolCallDelta(index, call.call_id, call.name, call.arguments)
            for index, call in enumerate(reply.message.calls)
        )
        flight.tell(ReplyDelta(choice, reply.message.reasoning, reply.message.text, calls, reply.logprobs))
    flight.land(answer)
    return flight


class Repeat(enum.StrEnum):
    """What to do with a request that may have been sent before."""

    FRESH = "fresh"
    """It is no retry: sample."""
    COALESCED = "coalesced"
    """It is a retry of a running call: wait for that one."""
    REPLAYED = "replayed"
    """It is a retry of an answered call: give that answer again."""


def judge(call: Call, earlier: Flight | None) -> Repeat:
    """Whether `call` repeats the `earlier` call of equal meaning (architecture, decision 5).

    With an idempotency key or a retry count above 0 a repeat is a retry. Without, it is one only if nobody waits
    for the earlier call any more and its last byte never left; else it is a new sample on purpose.
    """
    if earlier is None or isinstance(earlier.outcome, TurnstileError):
        return Repeat.FRESH
    key = call.retry.idempotency_key
    says_so = call.retry.retry_count > 0 or (key != "" and key == earlier.idempotency_key)
    never_arrived = earlier.waiting == 0 and not earlier.delivered
    if not (says_so or never_arrived):
        return Repeat.FRESH
    return Repeat.COALESCED if earlier.outcome is None else Repeat.REPLAYED


def key_conflict(key: str) -> CallerError:
    """The error for an idempotency key that was used with another body (public case F2)."""
    return CallerError(
        f"The idempotency key `{key[:40]}` was used before with another request",
        "Send a new key, or the same request again",
        code="idempotency_conflict",
        status=409,
        param="idempotency-key",
    )
