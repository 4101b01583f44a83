"""`turnstile store`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.store import Blobs, Reader


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    return shutil.copytree(store, tmp_path / "copy")


def test_a_whole_store_is_checked_in_one_line(run: Callable[..., Any], copy: Path) -> None:
    told = run("store", "check", copy)
    assert (told.exit_code, told.stdout, told.stderr) == (
        0,
        "",
        f"{copy}: 2 attempts, 11 records, 1 blob read; 0 errors, 0 notes\n",
    )


def test_what_is_lost_is_a_line_and_exit_code_5(run: Callable[..., Any], copy: Path) -> None:
    (blob,) = (copy / "blobs").glob("??/*")
    blob.unlink()
    told = run("store", "check", copy)
    message = f"error blob_missing {blob.name} a record names it, but it is not there\n"
    assert (told.exit_code, told.stdout) == (5, message)


def test_compacting_removes_what_nothing_names(run: Callable[..., Any], copy: Path) -> None:
    orphan = Blobs(copy).put(b"orphan")
    assert run("store", "check", copy).stdout.startswith(f"note blob_orphan {orphan} ")
    told = run("store", "compact", copy)
    assert told.exit_code == 0
    assert told.stderr.endswith(", 1 blob removed\n")
    assert run("store", "check", copy).stdout == ""


def test_a_backup_is_a_whole_store(run: Callable[..., Any], copy: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup"
    told = run("store", "backup", copy, target)
    assert (told.exit_code, told.stderr) == (0, f"{copy} copied to {target}: the journal and 1 blob\n")
    assert run("store", "check", target).exit_code == 0
    with Reader.open(copy) as one, Reader.open(target) as other:
        assert list(one.records("one")) == list(other.records("one"))
