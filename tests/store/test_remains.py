"""What a damaged journal still holds is told apart, and nothing is taken for a record that is none."""

from __future__ import annotations

import random
import shutil
import sqlite3

import pytest

from turnstile.errors import StoreError
from turnstile.journal import encode
from turnstile.store import Journal
from turnstile.store.remains import remains
from turnstile.store.schema import JOURNAL_FILE


@pytest.fixture
async def store(tmp_path, make):
    journal = Journal.open(tmp_path)
    for number in range(60):
        name = f"r{number}"
        for record in (
            make.opened(name),
            make.started(name, "c0", added=200),
            make.committed(name, "c0"),
            make.finished(name),
        ):
            await journal.append(record)
    await journal.set_meta("model_files:x", "y")
    journal.close()
    return tmp_path


def test_of_a_whole_store_everything_is_found(store, make):
    found = remains(store)
    assert found.attempts() == [(f"r{number}", 1) for number in range(60)]
    assert next(iter(found.records["r7", 1].values())) == encode(make.opened("r7"))
    assert all(found.expected[key] == set(found.records[key]) for key in found.attempts())
    assert (len(found.summaries), found.metas, found.torn_commits) == (60, {"model_files:x": "y"}, 0)


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes_cost_records_and_never_make_any(store, seed):
    whole = remains(store)
    file = store / "journal.sqlite3"
    content, rng = bytearray(file.read_bytes()), random.Random(seed)
    for _ in range(200):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)
    found = remains(store)
    bodies = {body for records in whole.records.values() for body in records.values()}
    assert {body for records in found.records.values() for body in records.values()} <= bodies
    assert len(found.attempts()) > 40


def test_a_store_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(StoreError, match="Cannot read"):
        remains(tmp_path / "none")


def test_the_database_of_another_program_is_refused(tmp_path):
    connection = sqlite3.connect(tmp_path / JOURNAL_FILE)
    connection.execute("CREATE TABLE places (url TEXT, title TEXT)")
    connection.executemany("INSERT INTO places VALUES (?, ?)", [("http://a", "A"), ("http://b", "B")])
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=r"is no journal of Turnstile's"):
        remains(tmp_path)


def test_a_journal_of_ours_whose_owner_is_damaged_is_read(store):
    file = store / JOURNAL_FILE
    content = bytearray(file.read_bytes())
    content[68:72] = b"\0\0\0\0"
    file.write_bytes(content)
    assert len(remains(store).attempts()) == 60


async def test_a_young_journal_of_ours_that_lost_its_log_is_not_taken_for_anothers(tmp_path, make):
    journal = Journal.open(tmp_path / "live")
    await journal.append(make.opened("r"))
    copy = shutil.copytree(tmp_path / "live", tmp_path / "copy")
    journal.close()
    (copy / f"{JOURNAL_FILE}-wal").unlink()
    assert remains(copy).attempts() == []
