"""From what went wrong to what the journal keeps and what the client is told."""

from __future__ import annotations

import asyncio
from datetime import datetime

from turnstile.errors import TurnstileError
from turnstile.journal import CallFailed
from turnstile.reasons import FailReason
from turnstile.tokens import NO_IDS, IdRun

_REASONS = {
    "render_failed": FailReason.RENDER_FAILED,
    "engine_unreachable": FailReason.ENGINE_UNREACHABLE,
    "engine_refused": FailReason.ENGINE_REFUSED,
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
        self._partials: dict[int, IdRun] = {}

    def sampled(self, choice: int, ids_S: IdRun) -> None:
        """A choice has sampled more ids."""
        self._partials[choice] = self._partials.get(choice, NO_IDS) + ids_S

    @property
    def partials(self) -> tuple[IdRun, ...]:
        """What each choice has sampled, the first one's first."""
        return tuple(self._partials.get(choice, NO_IDS) for choice in range(1 + max(self._partials, default=0)))


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
    record = CallFailed(
        rollout_id=progress.rollout_id,
        call_id=progress.call_id,
        failed_at=failed_at,
        reason=reason,
        problem=told.problem,
        dialect=progress.dialect,
        status=told.status,
        partial_S=progress.partials[0],
        other_partials_S=progress.partials[1:],
    )
    return record, told
