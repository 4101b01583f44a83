"""A store is opened if it is ours and of a version that is known; else one sentence says why not."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from turnstile.errors import StoreError
from turnstile.store import Durability, Journal, Reader
from turnstile.store.blob_names import UNKNOWN
from turnstile.store.schema import APPLICATION_ID, MIGRATED, MIGRATIONS, VERSION, open_writable

STORES = Path(__file__).parent / "stores"
"""Stores that earlier versions wrote; make.py beside them says how."""
OLD = sorted(each.name for each in STORES.iterdir() if each.is_dir() and (each / "journal.sqlite3").exists())


def altered(tmp_path, statement):
    Journal.open(tmp_path).close()
    with sqlite3.connect(tmp_path / "journal.sqlite3") as connection:
        connection.execute(statement)
    connection.close()


def test_a_new_store_has_the_newest_version_and_our_mark(tmp_path):
    Journal.open(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "journal.sqlite3")
    marks = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")]
    mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
    connection.close()
    assert (marks, mode) == ([VERSION, APPLICATION_ID], "wal")


@pytest.mark.parametrize("open_store", [Journal.open, Reader.open])
def test_a_store_of_a_newer_version_is_refused_in_one_sentence(tmp_path, open_store):
    altered(tmp_path, f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(StoreError) as refused:
        open_store(tmp_path)
    assert refused.value.code == "store_too_new"
    assert refused.value.problem.endswith(
        f"has version {VERSION + 1}, newer than the {VERSION} that this Turnstile knows"
    )


@pytest.mark.parametrize("open_store", [Journal.open, Reader.open])
def test_another_programs_database_is_left_alone(tmp_path, open_store):
    with sqlite3.connect(tmp_path / "journal.sqlite3") as connection:
        connection.execute("CREATE TABLE cats (name TEXT)")
    connection.close()
    with pytest.raises(StoreError, match="is no journal of Turnstile's"):
        open_store(tmp_path)


def test_a_store_that_a_writer_never_finished_making_says_what_to_do(tmp_path):
    (tmp_path / "journal.sqlite3").touch()
    with pytest.raises(StoreError, match="Start `turnstile serve` on it once") as refused:
        Reader.open(tmp_path)
    assert refused.value.code == "journal_empty"
    Journal.open(tmp_path).close()
    Reader.open(tmp_path).close()


def test_a_directory_without_a_journal_is_refused_to_a_reader(tmp_path):
    with pytest.raises(StoreError, match="There is no journal in"):
        Reader.open(tmp_path)
    with pytest.raises(StoreError, match="There is no directory"):
        Reader.open(tmp_path / "none")


def test_a_refused_store_is_free_for_the_next_process(tmp_path):
    altered(tmp_path, f"PRAGMA user_version = {VERSION + 1}")
    for _ in range(2):
        with pytest.raises(StoreError, match="newer than"):
            Journal.open(tmp_path)


@pytest.fixture
def archive():
    """A store in a directory that nobody may write to, read by somebody who is not root."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        Journal.open(directory).close()
        directory.chmod(0o555)
        me = os.geteuid()
        os.seteuid(me or 65534)
        try:
            yield directory
        finally:
            os.seteuid(me)
            directory.chmod(0o755)


def test_a_store_on_a_medium_that_cannot_be_written_can_be_read(archive):
    with Reader.open(archive) as reader:
        assert reader.rollouts() == []


def test_a_store_that_cannot_be_written_says_so_to_a_writer(archive):
    with pytest.raises(StoreError) as refused:
        Journal.open(archive)
    assert refused.value.remedy == "Make the store's directory writable for this user"


@pytest.mark.parametrize(("durability", "level"), [(Durability.PROCESS, 1), (Durability.POWER, 2)])
def test_each_durability_is_what_sqlite_calls_normal_and_full(tmp_path, durability, level):
    connection = open_writable(tmp_path / "journal.sqlite3", 1.0, durability)
    assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    connection.close()


@pytest.fixture(params=OLD)
def old(request, tmp_path):
    return shutil.copytree(STORES / request.param, tmp_path / "old")


def contents(directory):
    with Reader.open(directory) as reader:
        return reader.rollouts(), [list(reader.records(name)) for name in ("closed", "open")]


def rows(directory, query):
    connection = sqlite3.connect(directory / "journal.sqlite3")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_there_is_a_store_of_every_earlier_version():
    assert {rows(STORES / name, "PRAGMA user_version")[0][0] for name in OLD} == set(range(1, VERSION))


def test_a_store_of_an_earlier_version_is_read_as_it_is(old):
    summaries, (closed, still_open) = contents(old)
    assert [(each.rollout_id, each.status, each.turns, each.exported_at) for each in summaries] == [
        ("closed", "completed", 1, None),
        ("open", "running", 0, None),
    ]
    assert [type(record).__name__ for record in closed] == [
        "RolloutOpened",
        "CallStarted",
        "TurnCommitted",
        "RolloutFinished",
    ]
    assert [type(record).__name__ for record in still_open] == ["RolloutOpened", "CallStarted", "CallFailed"]
    assert rows(old, "PRAGMA user_version") == [(1,)]


def test_a_writer_brings_a_store_of_an_earlier_version_up_to_date_and_notes_it(old):
    before = contents(old)
    Journal.open(old).close()
    assert contents(old) == before
    assert rows(old, "PRAGMA user_version") == [(VERSION,)]
    ((note,),) = rows(old, f"SELECT value FROM meta WHERE key = '{MIGRATED}{VERSION}'")
    assert note.endswith(" from version 1")


def test_a_store_that_is_up_to_date_is_noted_nowhere(tmp_path):
    Journal.open(tmp_path).close()
    Journal.open(tmp_path).close()
    assert rows(tmp_path, "SELECT * FROM meta") == []


def test_bringing_a_store_up_to_date_notes_which_blobs_its_records_name(tmp_path):
    directory = shutil.copytree(STORES / "v1-images", tmp_path / "old")
    (blob,) = (directory / "blobs").glob("??/*")
    Journal.open(directory).close()
    assert rows(directory, "SELECT * FROM blob_names") == [(blob.name, "closed", 1)]


def test_a_record_that_cannot_be_read_may_name_any_blob(tmp_path):
    directory = shutil.copytree(STORES / "v1-images", tmp_path / "old")
    with sqlite3.connect(directory / "journal.sqlite3") as connection:
        connection.execute("UPDATE records SET body = x'00' WHERE rollout_id = 'closed' AND kind = 'call_started'")
    connection.close()
    Journal.open(directory).close()
    assert rows(directory, "SELECT * FROM blob_names") == [(UNKNOWN, "closed", 1)]


_DIES = """
import os, pathlib, signal, sys
from turnstile.store import Journal, schema
at = int(sys.argv[2])
die = lambda connection: os.kill(os.getpid(), signal.SIGKILL)
schema.MIGRATIONS = (schema.MIGRATIONS[0], (*schema.MIGRATIONS[1][:at], die, *schema.MIGRATIONS[1][at:]))
Journal.open(pathlib.Path(sys.argv[1]))
"""


@pytest.mark.parametrize("at", [0, 3, len(MIGRATIONS[1])])
def test_a_kill_while_a_store_is_brought_up_to_date_leaves_the_earlier_version(tmp_path, at):
    directory = shutil.copytree(STORES / "v1-images", tmp_path / "old")
    before = contents(directory)
    died = subprocess.run([sys.executable, "-c", _DIES, directory, str(at)], check=False)
    assert died.returncode == -signal.SIGKILL
    assert rows(directory, "PRAGMA user_version") == [(1,)]
    assert contents(directory) == before
    Journal.open(directory).close()
    assert contents(directory) == before
    assert rows(directory, "PRAGMA user_version") == [(VERSION,)]


def test_a_new_store_can_give_free_pages_back(tmp_path):
    Journal.open(tmp_path).close()
    assert rows(tmp_path, "PRAGMA auto_vacuum") == [(2,)]


async def test_a_file_that_ends_within_a_page_that_had_something_is_not_written_to(tmp_path, make):
    journal = Journal.open(tmp_path)
    await journal.append_all([make.opened(f"r{number}") for number in range(200)])
    journal.close()
    file = tmp_path / "journal.sqlite3"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = file.read_bytes()
    file.write_bytes(whole[:-2000])
    with pytest.raises(StoreError) as refused:
        Journal.open(tmp_path)
    assert refused.value.code == "journal_damaged"
    assert "store salvage" in refused.value.remedy
    file.write_bytes(whole)
    Journal.open(tmp_path).close()
