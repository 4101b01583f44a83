"""One request of an agent, from its arrival to the end of its answer: what happened is noted here as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias, final

import msgspec
from starlette.requests import Request

from turnstile.conversation import Answer
from turnstile.errors import TurnstileError
from turnstile.exchange.inflight import Flight
from turnstile.exchange.open_rollout import OpenRollout
from turnstile.exchange.repeats import Repeat
from turnstile.protocols.base import Dialect
from turnstile.server.call_report import ANSWERED, CLIENT_GONE, NO_STATUS, CallReport, Prompted, Took, prompted, took
from turnstile.server.keys import named_rollout
from turnstile.server.tracing import UNTRACED, Trace, Tracing

TellCall: TypeAlias = Callable[[CallReport], None]
"""Told of each request of an agent once it is over, and its call too; it must return at once."""


class Reception(msgspec.Struct, frozen=True):
    """Who is told of requests."""

    tell: TellCall
    tracing: Tracing = UNTRACED

    def visit(self, dialect: Dialect, path: str, request: Request) -> Visit:
        """A request has arrived."""
        return Visit(dialect, path, named_rollout(request), self.tracing.begin(path, request.headers))


@final
class Visit:
    """What is known of a request so far."""

    def __init__(self, dialect: Dialect, path: str, rollout_id: str, trace: Trace = UNTRACED) -> None:
        """A request has arrived.

        Args:
            dialect: what it speaks.
            path: as the dialect's table has it.
            rollout_id: which rollout it names; empty if none.
            trace: its span.
        """
        self.trace = trace
        self.dialect = dialect
        self.path = path
        self.rollout_id = rollout_id
        self.rollout: OpenRollout | None = None
        """Known once its key was checked."""
        self.flight: Flight | None = None
        """Known once the request was read."""
        self.how = Repeat.FRESH
        self.status = NO_STATUS
        self.refused = ""
        """The code of the error that it was told; empty if there is none."""
        self.is_over = False
        """Whether the last byte of an answer, or of an error, has left."""
        self._arrived_ns = self._read_ns = time.perf_counter_ns()
        self._left_ns = 0

    def enters(self, rollout: OpenRollout) -> None:
        """Its key was checked."""
        self.rollout, self.rollout_id = rollout, rollout.opened.rollout_id

    def was_read(self) -> None:
        """The whole body is here; until then the client was waited for."""
        self._read_ns = time.perf_counter_ns()

    def boards(self, flight: Flight, how: Repeat) -> None:
        """The request is answered by a call; one of its own began when the request was there."""
        self.flight, self.how = flight, how
        if how is Repeat.FRESH:
            flight.times.began_ns = self._read_ns

    def broke(self) -> None:
        """Turnstile failed inside; what answers then is not ours."""
        self.refused = TurnstileError.code
        self.status = self.status or TurnstileError.status
        self.is_over = True

    def leave(self, tell: TellCall) -> None:
        """The request is over. It is told of at once, or when the call that its client did not wait for has ended."""
        self._left_ns = time.perf_counter_ns()
        if self.flight is None:
            self._tell(tell)
        else:
            self.flight.when_landed(lambda: self._tell(tell))

    def _tell(self, tell: TellCall) -> None:
        report = self.report()
        tell(report)
        self.trace.end(report, self.flight.times if self.flight is not None and self.how is Repeat.FRESH else None)

    def report(self) -> CallReport:
        """All of it."""
        flight, rollout = self.flight, self.rollout
        state = None if flight is None or rollout is None else rollout.forest.calls.get(flight.call_id)
        return CallReport(
            rollout_id=self.rollout_id,
            attempt=rollout.opened.attempt if rollout is not None else 0,
            call_id=flight.call_id if flight is not None else "",
            dialect=self.dialect.name,
            path=self.path,
            status=self.status,
            outcome=self._outcome(),
            repeat=self.how.value,
            client_gone=not self.is_over,
            prompted=prompted(state, rollout.opened) if state is not None and rollout is not None else Prompted(),
            took=self._took(),
        )

    def _outcome(self) -> str:
        outcome = None if self.flight is None else self.flight.outcome
        if self.refused:
            return self.refused
        if not self.is_over:
            return CLIENT_GONE
        match outcome:
            case Answer():
                return ANSWERED
            case TurnstileError(code=code):
                return code
            case None:
                return CLIENT_GONE

    def _took(self) -> Took:
        total_s = (self._left_ns - self._arrived_ns) / 1e9
        if self.flight is not None:
            return took(self.flight.times, total_s) if self.how is Repeat.FRESH else Took(total_s)
        return Took(total_s, added_s=(self._left_ns - self._read_ns) / 1e9)
