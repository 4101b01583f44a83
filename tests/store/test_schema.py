"""A store is opened if it is ours and of a version that is known; else one sentence says why not."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

import pytest

from turnstile.errors import StoreError
from turnstile.store import Durability, Journal, Reader
from turnstile.store.schema import APPLICATION_ID, VERSION, open_writable


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
    with pytest.raises(StoreError, match="Start `turnstile serve` on it once"):
        Reader.open(tmp_path)
    Journal.open(tmp_path).close()
    Reader.open(tmp_path).close()


def test_a_directory_without_a_journal_is_refused_to_a_reader(tmp_path):
    with pytest.raises(StoreError, match="There is no journal in"):
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
