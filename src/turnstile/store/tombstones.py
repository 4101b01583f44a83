"""What stays of an attempt that was deleted: that it was there, how much of it, when it went and why."""

from __future__ import annotations

from datetime import datetime

import msgspec

from turnstile.errors import StoreError
from turnstile.journal import RolloutStatus
from turnstile.reasons import DeleteReason

SELECT_TOMBSTONE = """SELECT number, rollout_id, attempt, status, opened_at, finished_at, deleted_at, reason,
    exported_at, exported_to, calls, turns, sampled_tokens FROM tombstones"""


class Tombstone(msgspec.Struct, frozen=True):
    """An attempt that was deleted."""

    number: int
    """Position in the order of opening, which no other attempt is ever given."""
    rollout_id: str
    attempt: int
    status: RolloutStatus
    opened_at: datetime
    finished_at: datetime | None
    deleted_at: datetime
    reason: DeleteReason
    exported_at: datetime | None
    """When it last left for somewhere; None: nobody had it when it was deleted."""
    exported_to: str | None
    calls: int
    turns: int
    sampled_tokens: int


def tombstone_of(row: tuple[object, ...]) -> Tombstone:
    """A tombstone from a row of `SELECT_TOMBSTONE`. Raises: StoreError if the row is damaged."""
    try:
        return msgspec.convert(dict(zip(Tombstone.__struct_fields__, row, strict=True)), Tombstone)
    except msgspec.ValidationError as damaged:
        raise StoreError(
            f"The row of a deleted attempt, {row[:3]}, is damaged: {damaged}",
            "Take a copy of the store",
            code="row_damaged",
        ) from damaged
