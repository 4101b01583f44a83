"""From what went wrong to what the journal keeps and what the client is told."""

from __future__ import annotations

import asyncio
from datetime import datetime

from turnstile.conversation import ReplyDelta
from turnstile.errors import TurnstileError
from turnstile.exchange.partials import Partial, Reading
from turnstile.generation import Delta
from turnstile.journal import CallFailed, PartialChoice
from turnstile.reasons import FailReason
from turnstile.tokens import NO_IDS

_REASONS = {
    "overloaded": FailReason.OVERLOADED,
    "render_failed": FailReason.RENDER_FAILED,
    "engine_unreachable": FailReason.ENGINE_UNREACHABLE,
    "engine_refused": FailReason.ENGINE_REFUSED,
    "engine_key_refused": FailReason.ENGINE_REFUSED,
    "engine_aborted": FailReason.ENGINE_ABORTED,
    "policy_hold_expired": FailReason.POLICY_HOLD,
    "engine_broken": FailReason.ENGINE_BROKEN,
    "engine_error": FailReason.ENGINE_BROKEN,
    "echo_mismatch": FailReason.ECHO_MISMATCH,
    "internal_error": FailReason.INTERNAL,
    "context_length_exceeded": FailReason.CONTEXT_OVERFLOW,
    "client_gone": FailReason.CLIENT_GONE,
}


class Progress:
    """How far a call has come: what the record of its failure will say."""

    def __init__(self, rollout_id: str, dialect: str) -> None:
        self.rollout_id = rollout_id
        self.dialect = dialect
        self.call_id = ""
        """Empty until the call is planned and durable."""
        self._partials: dict[int, Partial] = {}

    def begin(self, choice: int, reading: Reading) -> None:
        """A choice is being sampled; nothing of it has come yet."""
        self._partials[choice] = Partial(reading)

    def sampled(self, choice: int, delta: Delta) -> None:
        """A choice has sampled more ids."""
        self._partials[choice].gain(delta)

    def told(self, choice: int, deltas: tuple[ReplyDelta, ...]) -> None:
        """What a choice has sampled was handed out so far as it is certain."""
        self._partials[choice].tell(deltas)

    @property
    def partials(self) -> tuple[Partial | None, ...]:
        """What each choice has sampled, the first one's first; None for one that had not begun."""
        return tuple(self._partials.get(choice) for choice in range(1 + max(self._partials, default=-1)))


def _known_of(partial: Partial | None, reason: FailReason) -> PartialChoice:
    return PartialChoice() if partial is None else partial.choice(reason)


def failure(
    error: TurnstileError | asyncio.CancelledError, progress: Progress, failed_at: datetime
) -> tuple[CallFailed, TurnstileError]:
    """The record of a failed call and the error for its client.

    A cancelled call is one that nobody waited for any more, or that the rollout's end cut short.
    """
    if isinstance(error, asyncio.CancelledError):
        reason = FailReason.CLIENT_GONE
        problem = "The call was given up: nobody waited for it, or its rollout was closed"
        told = TurnstileError(problem, "Send it again", code="cancelled", status=503)
    else:
        reason = _REASONS.get(error.code, FailReason.REFUSED)
        told = error
    partials = progress.partials
    sampled = [NO_IDS if partial is None else partial.ids_S for partial in partials]
    record = CallFailed(
        rollout_id=progress.rollout_id,
        call_id=progress.call_id,
        failed_at=failed_at,
        reason=reason,
        problem=told.problem,
        dialect=progress.dialect,
        status=told.status,
        partial_S=sampled[0] if sampled else NO_IDS,
        other_partials_S=tuple(sampled[1:]),
        partials=tuple(_known_of(partial, reason) for partial in partials) if any(sampled) else (),
    )
    return record, told
