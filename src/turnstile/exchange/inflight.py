"""Who waits for which call.

A call runs on its own; clients follow it. So a client that hangs up does not decide what is sampled, a retry
joins what already runs, and an answer that never arrived can be handed out again (docs/decisions/0006).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from turnstile.conversation import Answer, ReplyDelta, ToolCallDelta
from turnstile.errors import TurnstileError
from turnstile.exchange.timeline import Timeline
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
        self.is_retried = False
        """Whether it is about to fail and its repeat has come already."""
        self.joins = 0
        """How many clients have followed it so far."""
        self.has_place = False
        """Whether it has begun to run; until then it waits for others to end."""
        self.task: asyncio.Task[None] | None = None
        self.times = Timeline()
        self._is_kept = False
        self._begun = asyncio.Event()
        self._deltas: list[ReplyDelta] = []
        self._outcome: Answer | TurnstileError | None = None
        self._followers: set[Follower] = set()
        self._afterwards: list[Callable[[], None]] = []

    @property
    def waiting(self) -> int:
        """How many clients follow it now."""
        return len(self._followers)

    @property
    def is_given_up(self) -> bool:
        """Whether it is about to end because nobody waited for it: whoever comes now is to be sampled for."""
        return self._outcome is None and self.task is not None and self.task.cancelling() > 0

    @property
    def outcome(self) -> Answer | TurnstileError | None:
        """The whole answer, the error that ended it, or None while it runs."""
        return self._outcome

    @property
    def is_kept(self) -> bool:
        """Whether the journal has the call's beginning."""
        return self._is_kept

    def kept(self) -> None:
        """The journal has the call's beginning: what refers to it may follow."""
        self._is_kept = True
        self._begun.set()

    async def has_begun(self) -> bool:
        """Wait until the journal has the call's beginning; False if the call failed before."""
        await self._begun.wait()
        return self._is_kept

    def tell(self, *deltas: ReplyDelta) -> None:
        """Hand deltas to all who follow, now or later."""
        told = [delta for delta in deltas if not delta.is_empty]
        if told:
            self._deltas += told
            self._wake()

    def land(self, outcome: Answer | TurnstileError) -> None:
        """End the call; the first outcome counts."""
        if self._outcome is None:
            self._outcome = outcome
            self.times.landed()
            self._begun.set()
            self._wake()
            afterwards, self._afterwards = self._afterwards, []
            for each in afterwards:
                each()

    def when_landed(self, told: Callable[[], None]) -> None:
        """Be told when the call has ended; at once if it has."""
        if self._outcome is None:
            self._afterwards.append(told)
        else:
            told()

    def _wake(self) -> None:
        for follower in self._followers:
            follower.wake()

    def join(self) -> Follower:
        """Begin to follow; the client counts as waiting until it leaves."""
        follower = Follower(self, self._deltas, self._followers)
        self._followers.add(follower)
        self.joins += 1
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
            ToolCallDelta(index, call.call_id, call.name, call.arguments, is_last=True)
            for index, call in enumerate(reply.message.calls)
        )
        flight.tell(ReplyDelta(choice, reply.message.reasoning, reply.message.text, calls, reply.logprobs))
    flight.kept()
    flight.land(answer)
    return flight
