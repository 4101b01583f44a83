"""A process knows which rollouts the other processes of its deployment have."""

from __future__ import annotations

import pytest

from turnstile.errors import StoreError
from turnstile.store import Journal
from turnstile.store.siblings import Siblings


async def test_a_rollout_is_found_in_the_store_that_has_it_also_while_that_is_written(tmp_path, make):
    siblings = Siblings([tmp_path / "a", tmp_path / "b"])
    assert siblings.holder("r1") == ""
    journal = Journal.open(tmp_path / "b")
    try:
        assert siblings.holder("r1") == ""
        await journal.append(make.opened("r1"))
        assert (siblings.holder("r1"), siblings.holder("r2")) == ("b", "")
    finally:
        journal.close()
        siblings.close()


def test_a_store_that_cannot_be_read_is_no_empty_one(tmp_path):
    Journal.open(tmp_path / "a").close()
    (tmp_path / "a" / "journal.sqlite3").write_bytes(b"not a database, not at all")
    siblings = Siblings([tmp_path / "a"])
    with pytest.raises(StoreError):
        siblings.holder("r1")
