"""A file that is whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnstile.errors import StoreError
from turnstile.trajectory.whole import appears_whole


def test_a_file_appears_when_its_block_ends_well(tmp_path: Path) -> None:
    target = tmp_path / "a.jsonl"
    with appears_whole(target) as partial:
        partial.write_bytes(b"whole")
        assert not target.exists()
        assert partial.name.startswith(".")
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a.jsonl", b"whole")]


def test_a_block_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "a.jsonl"
    target.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), appears_whole(target) as partial:
        partial.write_bytes(b"half")
        raise ZeroDivisionError
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("a.jsonl", b"before")]


def test_a_disk_that_refuses_is_told_with_the_file(tmp_path: Path) -> None:
    target = tmp_path / "nowhere" / "a.jsonl"
    with pytest.raises(StoreError, match=r"nowhere/a\.jsonl cannot be written"), appears_whole(target) as partial:
        partial.write_bytes(b"")
