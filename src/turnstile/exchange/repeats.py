"""Which call of a rollout a request repeats, if it repeats one (docs/decisions/0006).

With an idempotency key a repeat names its call. With a retry count above 0 it is a retry of some call of the same
meaning; without either, only of one that nobody waits for and whose last byte never left. Anything else is a new
sample on purpose.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import msgspec

from turnstile.conversation import Answer, Call, Reply
from turnstile.errors import CallerError, TurnstileError
from turnstile.exchange.inflight import Flight, landed
from turnstile.history.calls import CallState
from turnstile.history.forest import Forest
from turnstile.journal import CallStarted

_MOST_FAILURES = 1000
"""Of so many meanings it is known that a call failed; an agent may be refused for ever, each time for another."""


class Repeat(enum.StrEnum):
    """What to do with a request that may have been sent before."""

    FRESH = "fresh"
    """It is no retry: sample."""
    COALESCED = "coalesced"
    """It is a retry of a running call: wait for that one."""
    REPLAYED = "replayed"
    """It is a retry of an answered call: give that answer again."""


class Found(msgspec.Struct, frozen=True):
    """A call that a request repeats, or none."""

    how: Repeat
    flight: Flight | None = None


_FRESH = Found(Repeat.FRESH)


class Repeats:
    """The calls of one rollout by meaning and by key, those in the air and those in the journal."""

    def __init__(self, forest: Forest, heard: set[str] | None = None) -> None:
        """Know the calls of a forest.

        Args:
            forest: what the journal has; it may grow.
            heard: calls whose answers this process knows to have arrived, though the journal may not say so yet; it is
                kept, and grows.
        """
        self._forest = forest
        self._flights: dict[str, Flight] = {}
        self._of_digest: dict[str, list[str]] = {}
        self._of_key: dict[str, tuple[str, str]] = {}
        self._failures = outstanding_failures(forest.calls.values())
        self.heard = set[str]() if heard is None else heard
        """Calls whose answers are known here to have arrived, with some of which the journal says so too."""
        for state in forest.calls.values():
            self._name(state.started.body_digest, state.started.idempotency_key, state.started.call_id)

    def _name(self, digest: str, key: str, call_id: str) -> None:
        self._of_digest.setdefault(digest, []).append(call_id)
        if key:
            self._of_key[key] = (digest, call_id)

    @property
    def running(self) -> tuple[Flight, ...]:
        """Calls that have not landed."""
        return tuple(flight for flight in self._flights.values() if flight.outcome is None)

    def took_off(self, flight: Flight) -> None:
        """A call is being sampled."""
        self._flights[flight.call_id] = flight
        self._name(flight.digest, flight.idempotency_key, flight.call_id)

    def delivered(self, flight: Flight) -> None:
        """The last byte of a call's answer left to a client that was still there."""
        flight.delivered = True
        self._lands(flight)
        self.heard.add(flight.call_id)

    def lost(self, flight: Flight) -> bool:
        """A call was answered and nobody took the answer; the journal has it. False if that was noted before."""
        return self._lands(flight)

    def _lands(self, flight: Flight) -> bool:
        # The answer may be on its way to another client by now, in a flight of its own.
        if self._flights.get(flight.call_id) is not flight:
            return False
        del self._flights[flight.call_id]
        return True

    def newly_heard(self) -> tuple[str, ...]:
        """Calls whose answers have arrived, which the next record has to say (docs/decisions/0038).

        Those of which a record says so are forgotten here.
        """
        calls = self._forest.calls
        self.heard.difference_update([call_id for call_id in self.heard if call_id in calls and calls[call_id].heard])
        return tuple(sorted(self.heard))

    def failed(self, flight: Flight) -> None:
        """A call ended in an error: a retry of it is to be sampled."""
        self._lands(flight)
        if not flight.is_retried:
            self._expect_retry(flight.digest, flight.idempotency_key)
        if flight.call_id not in self._forest.calls:
            self._forget(flight)

    def interrupted(self, started: CallStarted) -> None:
        """A call ran when the process before this one ended: the same."""
        self._expect_retry(started.body_digest, started.idempotency_key)

    def _expect_retry(self, digest: str, key: str) -> None:
        # A key names the call that its retry is of.
        if not key:
            self._failures[digest] += 1
            if len(self._failures) > _MOST_FAILURES:
                del self._failures[next(iter(self._failures))]

    def _forget(self, flight: Flight) -> None:
        """One that never began can be no answer to a retry: nothing of it stays in memory."""
        named = self._of_digest.get(flight.digest, [])
        if flight.call_id in named:
            named.remove(flight.call_id)
        if not named:
            self._of_digest.pop(flight.digest, None)
        if self._of_key.get(flight.idempotency_key) == (flight.digest, flight.call_id):
            del self._of_key[flight.idempotency_key]

    def find(self, call: Call, digest: str) -> Found:
        """The call that a request repeats.

        Raises: CallerError 409 if its idempotency key was used with another meaning (public case F2).
        """
        key, is_marked = call.retry.idempotency_key, call.retry.retry_count > 0
        if key in self._of_key:
            known_digest, call_id = self._of_key[key]
            if known_digest != digest:
                raise _key_conflict(key)
            return self._handed_out(self._flight(digest, call_id))
        if key:
            return _FRESH
        is_asked_elsewhere = False
        for flight in self._flights_of(digest, self._was_heard):
            if flight.waiting == 0:
                return self._handed_out(flight)
            is_asked_elsewhere = True
        if is_marked:
            return self._marked(digest)
        if not is_asked_elsewhere:
            # Where nobody else asks the same just now, it is the repeat of the one that failed.
            self._retried(digest)
        return _FRESH

    def _handed_out(self, flight: Flight | None) -> Found:
        if flight is None:
            return _FRESH
        if not flight.delivered:
            # Whoever asks meanwhile finds it taken: two equal requests have an answer each.
            self._flights[flight.call_id] = flight
        return Found(Repeat.COALESCED if flight.outcome is None else Repeat.REPLAYED, flight)

    def _retried(self, digest: str) -> bool:
        """Whether a call of this meaning has failed, or is about to, whose repeat has not come yet: this is it."""
        if digest in self._failures:
            self._failures[digest] -= 1
            if not self._failures[digest]:
                del self._failures[digest]
            return True
        for flight in self._in_the_air(digest):
            if flight.is_given_up and not flight.is_retried and not flight.idempotency_key:
                flight.is_retried = True
                return True
        return False

    def _in_the_air(self, digest: str) -> Iterator[Flight]:
        """Flights of a meaning, the latest first."""
        return (flight for flight in reversed(self._flights.values()) if flight.digest == digest)

    def _marked(self, digest: str) -> Found:
        """A retry whose own call cannot be told from its equals: of one that failed, else of the latest."""
        if self._retried(digest):
            return _FRESH
        for flight in self._in_the_air(digest):
            if flight.outcome is None and not flight.is_given_up:
                return self._handed_out(flight)
        return self._handed_out(next(self._flights_of(digest), None))

    def _was_heard(self, call_id: str) -> bool:
        state = self._forest.calls.get(call_id)
        return call_id in self.heard or (state is not None and state.heard)

    def _flights_of(self, digest: str, ruled_out: Callable[[str], bool] = lambda _: False) -> Iterator[Flight]:
        """Calls of a meaning that run or were answered, the latest first, but for those that are ruled out."""
        for call_id in reversed(self._of_digest.get(digest, ())):
            if ruled_out(call_id):
                continue
            if (flight := self._flight(digest, call_id)) is not None:
                yield flight

    def _flight(self, digest: str, call_id: str) -> Flight | None:
        if (flight := self._flights.get(call_id)) is not None:
            return None if isinstance(flight.outcome, TurnstileError) or flight.is_given_up else flight
        state = self._forest.calls.get(call_id)
        if state is None or state.committed is None:
            return None
        flight = landed(digest, call_id, answer_of(state))
        flight.idempotency_key = state.started.idempotency_key
        flight.history = state.started.history
        flight.delivered = self._was_heard(call_id)
        return flight


def outstanding_failures(calls: Iterable[CallState]) -> Counter[str]:
    """How many calls of each meaning failed behind which no equal one began: their retries may be yet to come.

    Calls with a key are left out: a key names the call that its retry is of.
    """
    failed_at: dict[str, list[datetime]] = {}
    for state in calls:
        started = state.started
        if started.idempotency_key:
            continue
        failures = failed_at.setdefault(started.body_digest, [])
        retried = next((at for at in failures if at <= started.started_at), None)
        if retried is not None:
            failures.remove(retried)
        if state.failed is not None:
            failures.append(state.failed.failed_at)
    return Counter({digest: len(failures) for digest, failures in failed_at.items() if failures})


def _key_conflict(key: str) -> CallerError:
    return CallerError(
        f"The idempotency key `{key[:40]}` was used before with another request",
        "Send a new key, or the same request again",
        code="idempotency_conflict",
        status=409,
        param="idempotency-key",
    )


def answer_of(state: CallState) -> Answer:
    """The answer that a committed call was given.

    Raises: ValueError if the call was not committed.
    """
    if state.committed is None:
        raise ValueError(f"call {state.started.call_id} has no answer")
    choices = state.committed.choices
    completion = sum(choice.usage.completion_tokens for choice in choices)
    return Answer(
        tuple(Reply(choice.message, choice.reply_finish, stop_string=choice.stop_string) for choice in choices),
        msgspec.structs.replace(choices[0].usage, completion_tokens=completion),
    )
