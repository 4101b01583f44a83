"""A live store can be copied whole; a quiet one gives back what nobody needs."""

from __future__ import annotations

import os
import threading

import pytest

from turnstile.errors import CallerError, StoreError
from turnstile.store import Blobs, Journal, Reader
from turnstile.store.upkeep import back_up, compact


async def test_a_backup_of_a_live_store_has_every_acknowledged_record_and_blob(tmp_path, make):
    journal = Journal.open(tmp_path / "store")
    try:
        await journal.append(make.opened("a"))
        sha256 = Blobs(tmp_path / "store").put(b"an image")
        await journal.append(make.started("a", "c0"))
        told: list[int] = []
        assert back_up(tmp_path / "store", tmp_path / "copy", told.append) == 1
    finally:
        journal.close()
    with Reader.open(tmp_path / "copy") as reader:
        assert list(reader.records("a")) == [make.opened("a"), make.started("a", "c0")]
    assert (Blobs(tmp_path / "copy").get(sha256), told) == (b"an image", [1])


async def test_a_backup_made_while_others_write_is_a_prefix_of_what_they_wrote(tmp_path, make):
    journal = Journal.open(tmp_path / "store")
    names = [f"r{number}" for number in range(200)]
    copying = threading.Thread(target=back_up, args=(tmp_path / "store", tmp_path / "copy", [].append))
    try:
        for number, name in enumerate(names):
            await journal.append(make.opened(name))
            if number == 50:
                copying.start()
        copying.join()
    finally:
        journal.close()
    with Reader.open(tmp_path / "copy") as reader:
        kept = [summary.rollout_id for summary in reader.rollouts(limit=1000)]
    assert len(kept) > 50
    assert kept == names[: len(kept)]


async def test_a_backup_goes_on_as_a_store_of_its_own(tmp_path, make):
    journal = Journal.open(tmp_path / "store")
    await journal.append(make.opened("a"))
    journal.close()
    back_up(tmp_path / "store", tmp_path / "copy", [].append)
    again = Journal.open(tmp_path / "copy")
    await again.append(make.started("a", "c0"))
    again.close()
    with Reader.open(tmp_path / "copy") as reader:
        assert len(list(reader.records("a"))) == 2


def test_a_backup_never_goes_into_a_directory_with_something_in_it(tmp_path):
    Journal.open(tmp_path / "store").close()
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").touch()
    with pytest.raises(CallerError, match="is not empty"):
        back_up(tmp_path / "store", tmp_path / "copy", [].append)
    assert os.listdir(tmp_path / "copy") == ["mine"]


def test_a_backup_that_broke_off_is_no_store(tmp_path):
    Journal.open(tmp_path / "store").close()
    sha256 = Blobs(tmp_path / "store").put(b"an image")

    def full(_: int) -> None:
        raise OSError("No space left on device")

    with pytest.raises(StoreError, match="Cannot copy the store"):
        back_up(tmp_path / "store", tmp_path / "copy", full)
    with pytest.raises(StoreError, match="There is no journal"):
        Reader.open(tmp_path / "copy")
    assert Blobs(tmp_path / "copy").get(sha256) == b"an image"


def test_compacting_removes_unnamed_blobs_and_half_written_ones_and_nothing_else(tmp_path):
    Journal.open(tmp_path).close()
    blobs = Blobs(tmp_path)
    wanted, orphan = blobs.put(b"wanted"), blobs.put(b"orphan")
    draft = tmp_path / "blobs" / wanted[:2] / ".draft-abc"
    draft.write_bytes(b"half")
    done = compact(tmp_path, lambda: frozenset([wanted]))
    assert (done.blobs_removed, blobs.has(orphan), draft.exists()) == (1, False, False)
    assert blobs.get(wanted) == b"wanted"


async def test_compacting_gives_back_free_pages_and_keeps_every_record(tmp_path, make):
    journal = Journal.open(tmp_path)
    await journal.append(make.opened("a"))
    await journal.append(make.started("a", "c0", added=50_000))
    for number in range(50):
        await journal.set_meta(f"note{number}", "x" * 20_000)
    for number in range(50):
        await journal.set_meta(f"note{number}", "")
    journal.close()
    done = compact(tmp_path, frozenset[str])
    assert done.bytes_after < done.bytes_before - 500_000
    with Reader.open(tmp_path) as reader:
        assert list(reader.records("a")) == [make.opened("a"), make.started("a", "c0", added=50_000)]


def test_a_store_that_a_server_has_is_not_compacted(tmp_path):
    journal = Journal.open(tmp_path)
    try:
        with pytest.raises(StoreError) as refused:
            compact(tmp_path, frozenset[str])
    finally:
        journal.close()
    assert refused.value.code == "store_in_use"
