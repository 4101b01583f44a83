"""Where a command's trajectories come from."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.cli.sources import Selection, open_source
from turnstile.errors import StoreError
from turnstile.trajectory.files import read
from turnstile.trajectory.rules import Rules
from turnstile.trajectory.side_files import SideBytesLost, SideKind


def test_a_store_knows_how_many_there_will_be_and_a_file_does_not(
    run: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    run("export", store, "-o", tmp_path / "a.jsonl")
    for path, total in ((store, 2), (tmp_path / "a.jsonl", None), (tmp_path, None)):
        with open_source(path, Selection(), Rules()) as source:
            assert (source.total, len(list(source.rollouts())), source.lost) == (total, 2, [])


def test_bytes_that_a_source_does_not_have_are_lost(run: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    run("export", store, "-o", tmp_path / "a.jsonl")
    for path in (store, tmp_path / "a.jsonl"):
        with open_source(path, Selection(), Rules()) as source, pytest.raises(SideBytesLost):
            source.side_bytes(SideKind.MEDIA, "0" * 64)


def test_a_folder_with_neither_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError), open_source(tmp_path, Selection(), Rules()):
        pass


@pytest.fixture
def two_stores(store: Path, tmp_path: Path) -> Path:
    """A folder with the stores of two processes: one has rollout `one`, the other has `two`."""
    folder = tmp_path / "stores"
    for name, other in (("a", "two"), ("b", "one")):
        shutil.copytree(store, folder / name)
        with sqlite3.connect(folder / name / "journal.sqlite3") as connection:
            connection.execute("DELETE FROM records WHERE rollout_id = ?", (other,))
            connection.execute("DELETE FROM rollouts WHERE rollout_id = ?", (other,))
        connection.close()
    return folder


def test_a_folder_of_stores_is_read_as_one(run: Callable[..., Any], two_stores: Path, tmp_path: Path) -> None:
    told = run("export", two_stores, "-o", tmp_path / "all.jsonl")
    assert told.exit_code == 0
    assert [each.rollout_id for each in read(tmp_path / "all.jsonl")] == ["one", "two"]
    chosen = run("export", two_stores, "-o", tmp_path / "some.jsonl", "--rollout", "two")
    assert chosen.exit_code == 0
    assert [each.rollout_id for each in read(tmp_path / "some.jsonl")] == ["two"]


def test_drift_and_the_check_read_a_folder_of_stores_too(run: Callable[..., Any], two_stores: Path) -> None:
    rows = run("drift", two_stores, "--json").stdout.splitlines()
    assert [msgspec.json.decode(row)["rollout_id"] for row in rows] == ["one", "two"]
    told = run("store", "check", two_stores)
    assert told.exit_code == 0
    assert [line.split(":")[0] for line in told.stderr.splitlines()] == [str(two_stores / "a"), str(two_stores / "b")]
