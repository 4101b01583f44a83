"""What is told of a rollout that is not there, is gone, stays, or has ended."""

from __future__ import annotations

from typing import assert_never

from turnstile.errors import CallerError
from turnstile.journal import RolloutFinished
from turnstile.store.deletion import Kept, Standing
from turnstile.store.tombstones import Tombstone


def not_found(rollout_id: str) -> CallerError:
    """The error for a rollout that was never opened here."""
    return CallerError(
        f"There is no rollout `{rollout_id[:128]}` here",
        "Create it with POST /rollouts and use the base URL that the answer gives",
        code="rollout_not_found",
        status=404,
    )


def gone(stone: Tombstone) -> CallerError:
    """The error for a rollout whose latest attempt was deleted."""
    where = f"; it had been exported to `{stone.exported_to}`" if stone.exported_to else ""
    what = f"{stone.calls} calls and {stone.sampled_tokens} sampled tokens"
    return CallerError(
        f"Attempt {stone.attempt} of rollout `{stone.rollout_id}`, with {what}, was deleted at"
        f" {stone.deleted_at:%Y-%m-%dT%H:%M:%SZ} ({stone.reason}){where}",
        "Create it with POST /rollouts to start its next attempt",
        code="rollout_deleted",
        status=410,
    )


def kept(rollout_id: str, why: Kept) -> CallerError:
    """The error for a rollout that is not deleted."""
    match why.why:
        case Standing.OPEN:
            problem, remedy = "is open", "Finish it first"
            code = "rollout_open"
        case Standing.UNEXPORTED:
            problem, remedy = "was never exported", "Export it first, or send `unexported=delete`"
            code = "rollout_unexported"
        case _:
            assert_never(why.why)
    return CallerError(f"Attempt {why.attempt} of rollout `{rollout_id}` {problem}", remedy, code=code, status=409)


def ended_before(rollout_id: str, ended: RolloutFinished | None) -> CallerError:
    """The error for a second end; `ended` is the first, None while that waits for running calls."""
    said = "is being closed" if ended is None else f"was closed before: {_outcome(ended)}"
    return CallerError(
        f"Rollout `{rollout_id}` {said}",
        "That end stands, and nothing of this one was kept; create the rollout again to start its next attempt",
        code="rollout_closed",
        status=409,
    )


def _outcome(ended: RolloutFinished) -> str:
    reward = "no reward" if ended.reward is None else f"reward {ended.reward:g}"
    return f"{ended.status}, {reward}, at {ended.finished_at:%Y-%m-%dT%H:%M:%SZ}"
