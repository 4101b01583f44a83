"""What a store lost before it was opened is said, not passed over."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from turnstile.errors import StoreError
from turnstile.store import Blobs, Journal, Reader
from turnstile.store.losses import INCIDENT, behind_damage


@pytest.fixture
async def killed(tmp_path, make):
    """A store as a kill leaves it: the lock names the process, and much is only in the write-ahead log."""
    journal = Journal.open(tmp_path / "live")
    for number in range(40):
        await journal.append(make.opened(f"r{number}"))
    copy = shutil.copytree(tmp_path / "live", tmp_path / "killed")
    journal.close()
    return copy


def opened(directory):
    """What is told, and what can be read afterwards."""
    journal = Journal.open(directory)
    journal.close()
    with Reader.open(directory) as reader:
        noted = [value for key, value in reader.metas().items() if key.startswith(INCIDENT)]
        assert noted == list(journal.incidents)
        return journal.incidents, [each.rollout_id for each in reader.rollouts(limit=1000)]


async def test_a_kill_by_itself_loses_nothing_and_says_nothing(killed):
    assert opened(killed) == ((), [f"r{number}" for number in range(40)])


async def test_a_write_ahead_log_that_was_removed_is_missed(killed):
    (killed / "journal.sqlite3-wal").unlink()
    (killed / "journal.sqlite3-shm").unlink()
    told, _ = opened(killed)
    assert told == (
        "The write-ahead log of the process that had the store last is gone; what it wrote last may be lost with it.",
    )


async def test_the_shared_memory_file_alone_is_no_loss(killed):
    (killed / "journal.sqlite3-shm").unlink()
    assert opened(killed) == ((), [f"r{number}" for number in range(40)])


async def test_commits_behind_a_damaged_frame_are_counted(killed):
    log = killed / "journal.sqlite3-wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    (told,), kept = opened(killed)
    assert told.endswith("commits at the end of the write-ahead log are damaged and lost.")
    assert kept == [f"r{number}" for number in range(len(kept))]
    # The first commit behind the damage may have been one that was never finished, so it is not counted.
    assert 0 <= 40 - len(kept) - int(told.split()[0]) <= 1


@pytest.mark.parametrize("left", [0, 20, -100], ids=["emptied", "cut within its header", "cut within its last frame"])
@pytest.mark.parametrize("behind", [b"", b"\0" * 100], ids=["shorter", "zeros behind"])
async def test_a_log_that_was_cut_is_told_by_its_index(killed, left, behind):
    log = killed / "journal.sqlite3-wal"
    content = log.read_bytes()
    log.write_bytes(content[:left] + behind)
    told, kept = opened(killed)
    assert len(told) == 1
    assert "write-ahead log" in told[0]
    assert kept == ([f"r{number}" for number in range(39)] if left < 0 else [])


async def test_an_index_of_another_format_says_nothing(killed):
    log, index = killed / "journal.sqlite3-wal", killed / "journal.sqlite3-shm"
    log.write_bytes(log.read_bytes()[:-100])
    content = bytearray(index.read_bytes())
    content[0:4] = content[48:52] = content[0:4][::-1]
    index.write_bytes(content)
    assert opened(killed)[0] == ()


async def test_of_a_cut_log_without_its_index_nothing_is_known(killed):
    log = killed / "journal.sqlite3-wal"
    log.write_bytes(log.read_bytes()[:-100])
    (killed / "journal.sqlite3-shm").unlink()
    told, kept = opened(killed)
    assert (told, kept) == ((), [f"r{number}" for number in range(39)])


async def test_frames_that_are_in_the_journal_are_not_missed(tmp_path, make):
    journal = Journal.open(tmp_path / "live")
    for number in range(40):
        await journal.append(make.opened(f"r{number}"))
    with sqlite3.connect(tmp_path / "live" / "journal.sqlite3") as other:
        other.execute("PRAGMA wal_checkpoint(FULL)")
    copy = shutil.copytree(tmp_path / "live", tmp_path / "killed")
    other.close()
    journal.close()
    (copy / "journal.sqlite3-wal").write_bytes(b"")
    assert opened(copy) == ((), [f"r{number}" for number in range(40)])


def test_a_frame_that_was_being_written_is_no_loss():
    assert behind_damage((3, 5, 9), read=8) == ""
    assert behind_damage((3, 5, 9), read=4) == "1 commits at the end of the write-ahead log are damaged and lost."


@pytest.mark.parametrize("how", ["emptied", "removed"])
async def test_a_journal_that_is_gone_is_never_replaced_by_an_empty_one(killed, how):
    for each in killed.glob("journal.sqlite3-*"):
        each.unlink()
    Blobs(killed).put(b"an image")
    file = killed / "journal.sqlite3"
    file.write_bytes(b"") if how == "emptied" else file.unlink()
    for _ in range(2):
        with pytest.raises(StoreError) as refused:
            Journal.open(killed)
        assert refused.value.code == "journal_lost"
    assert not file.exists() or file.stat().st_size == 0


async def test_a_log_without_its_journal_is_not_thrown_away(killed):
    (killed / "journal.sqlite3").write_bytes(b"")
    before = (killed / "journal.sqlite3-wal").read_bytes()
    with pytest.raises(StoreError, match="is empty, but its log is beside it"):
        Journal.open(killed)
    assert (killed / "journal.sqlite3-wal").read_bytes() == before


async def test_a_log_without_its_journal_is_not_thrown_away_by_whoever_reads_either(killed):
    (killed / "journal.sqlite3").write_bytes(b"")
    before = (killed / "journal.sqlite3-wal").read_bytes()
    with pytest.raises(StoreError) as refused:
        Reader.open(killed)
    assert refused.value.code == "journal_empty"
    assert (killed / "journal.sqlite3-wal").read_bytes() == before


@pytest.mark.parametrize("beginning", [b"\0" * 32, b"\x37\x7f\x06\x82" + b"\0" * 28], ids=["zeros", "wrong sums"])
async def test_a_log_that_is_damaged_at_its_beginning_is_told(killed, beginning):
    log = killed / "journal.sqlite3-wal"
    log.write_bytes(beginning + log.read_bytes()[32:])
    told, _ = opened(killed)
    assert told == (
        "The write-ahead log of the process that had the store last is damaged at its beginning; "
        "what stood in it is lost.",
    )
