"""The row of a deleted attempt is read whole or not at all."""

from __future__ import annotations

import pytest

from turnstile.errors import StoreError
from turnstile.store.tombstones import Tombstone, tombstone_of

NOON = "2026-12-01T12:00:00+00:00"
ROW = (1, "a", 1, "completed", NOON, NOON, NOON, "age", None, None, 3, 2, 40)


def test_a_row_is_a_tombstone():
    stone = tombstone_of(ROW)
    assert (stone.rollout_id, stone.reason, stone.calls, stone.exported_at) == ("a", "age", 3, None)
    assert len(ROW) == len(Tombstone.__struct_fields__)


def test_a_damaged_row_is_named():
    with pytest.raises(StoreError, match=r"\(1, 'a', 1\), is damaged"):
        tombstone_of((*ROW[:3], "asleep", *ROW[4:]))
