"""A mark says that a closed attempt left; it is written beside a server, and licenses nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from turnstile.errors import StoreError
from turnstile.store import Exported, Journal, Reader
from turnstile.store.exports import ExportMark, mark, mark_beside


async def closed(journal, make, rollout_id):
    for record in (make.opened(rollout_id), make.finished(rollout_id)):
        await journal.append(record)


async def test_a_mark_is_in_the_summary_and_narrows_listings(journal, tmp_path, make):
    for name in ("a", "b"):
        await closed(journal, make, name)
    assert mark_beside(tmp_path, [ExportMark("a", 1, "file.jsonl", make.at(20))]) == 1
    with Reader.open(tmp_path) as reader:
        summary = reader.rollout("a")
        listed = [[each.rollout_id for each in reader.rollouts(exported=which)] for which in (*Exported, None)]
    assert (summary.exported_at, summary.exported_to) == (make.at(20), "file.jsonl")
    assert listed == [["a"], ["b"], ["a", "b"]]


async def test_an_open_attempt_gets_no_mark(journal, tmp_path, make):
    await journal.append(make.opened("a"))
    assert mark_beside(tmp_path, [ExportMark("a", 1, "x", make.at(20)), ExportMark("b", 1, "x", make.at(20))]) == 0


async def test_a_rollout_that_left_again_says_where_it_went_last(journal, tmp_path, make):
    await closed(journal, make, "a")
    for where, when in (("x", 20), ("y", 40), ("x", 30)):
        journal.change(lambda at, where=where, when=when: mark(at, [ExportMark("a", 1, where, make.at(when))]))
    with Reader.open(tmp_path) as reader:
        summary = reader.rollout("a")
    assert (summary.exported_at, summary.exported_to) == (make.at(40), "y")


async def test_marks_are_written_while_a_server_appends(journal, tmp_path, make):
    names = [f"r{number}" for number in range(450)]
    for name in names:
        await closed(journal, make, name)
    marks = [ExportMark(name, 1, "x", make.at(20)) for name in names]
    assert mark_beside(tmp_path, marks) == 450
    await closed(journal, make, "later")
    with Reader.open(tmp_path) as reader:
        assert [each.rollout_id for each in reader.rollouts(exported=Exported.NO)] == ["later"]


async def test_a_mark_leaves_the_write_ahead_log_of_a_killed_server_to_the_next_one(tmp_path, make):
    journal = Journal.open(tmp_path / "live")
    await closed(journal, make, "a")
    killed = shutil.copytree(tmp_path / "live", tmp_path / "killed")
    journal.close()
    assert mark_beside(killed, [ExportMark("a", 1, "x", make.at(20))]) == 1
    assert (killed / "journal.sqlite3-wal").exists()


def test_a_store_of_an_earlier_version_is_not_marked(tmp_path, make):
    store = shutil.copytree(Path(__file__).parent / "stores" / "v1", tmp_path / "old")
    with pytest.raises(StoreError) as refused:
        mark_beside(store, [ExportMark("closed", 1, "x", make.at(20))])
    assert refused.value.code == "store_too_old"


def test_nothing_to_mark_needs_no_store(tmp_path):
    assert mark_beside(tmp_path / "none", []) == 0
