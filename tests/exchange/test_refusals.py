"""A rollout that is gone says what it was, when it went and where it is."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from turnstile.exchange.refusals import ended_before, gone, kept, not_found
from turnstile.journal import RolloutFinished, RolloutStatus
from turnstile.reasons import DeleteReason
from turnstile.store.deletion import Kept, Standing
from turnstile.store.tombstones import Tombstone

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
STONE = Tombstone(
    number=1,
    rollout_id="r",
    attempt=2,
    status=RolloutStatus.COMPLETED,
    opened_at=NOON,
    finished_at=NOON,
    deleted_at=NOON,
    reason=DeleteReason.AGE,
    exported_at=NOON,
    exported_to="rollouts.parquet",
    calls=3,
    turns=3,
    sampled_tokens=40,
)


def test_a_tombstone_is_told():
    assert gone(STONE).problem == (
        "Attempt 2 of rollout `r`, with 3 calls and 40 sampled tokens, was deleted at 2026-12-01T12:00:00Z (age);"
        " it had been exported to `rollouts.parquet`"
    )
    nowhere = msgspec.structs.replace(STONE, exported_at=None, exported_to=None)
    assert gone(nowhere).problem.endswith("2026-12-01T12:00:00Z (age)")


@pytest.mark.parametrize(
    ("why", "code"), [(Standing.OPEN, "rollout_open"), (Standing.UNEXPORTED, "rollout_unexported")]
)
def test_what_stays_says_why(why, code):
    error = kept("r", Kept(3, why))
    assert (error.code, error.status, error.problem[:23]) == (code, 409, "Attempt 3 of rollout `r")


def test_an_id_that_was_never_used_is_not_found():
    assert (not_found("r").code, not_found("r").status) == ("rollout_not_found", 404)


def test_a_second_end_is_told_what_the_first_one_said():
    ended = RolloutFinished("r", NOON, RolloutStatus.COMPLETED, reward=0.5)
    told = [ended_before("r", each).problem for each in (ended, msgspec.structs.replace(ended, reward=None), None)]
    assert told == [
        "Rollout `r` was closed before: completed, reward 0.5, at 2026-12-01T12:00:00Z",
        "Rollout `r` was closed before: completed, no reward, at 2026-12-01T12:00:00Z",
        "Rollout `r` is being closed",
    ]
    assert (ended_before("r", ended).code, ended_before("r", ended).status) == ("rollout_closed", 409)
