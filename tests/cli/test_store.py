"""`turnstile store`."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from turnstile.errors import CallerError
from turnstile.store import Blobs, Reader


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


def test_all_of_a_whole_store_is_saved(run: Callable[..., Any], copy: Path, tmp_path: Path) -> None:
    target = tmp_path / "saved"
    told = run("store", "salvage", copy, target)
    assert (told.exit_code, told.stdout, told.stderr) == (
        0,
        "",
        f"{copy} saved to {target}: 2 attempts whole, 0 cut, 0 lost; 1 blob kept, 0 lost\n",
    )
    assert run("store", "check", target).exit_code == 0


def test_what_cannot_be_saved_is_a_line_each_and_exit_code_5(
    run: Callable[..., Any], copy: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(copy / "journal.sqlite3", isolation_level=None)) as connection:
        connection.execute("UPDATE records SET body = x'00' WHERE rollout_id = 'two' AND kind = 'turn_committed'")
    (blob,) = (copy / "blobs").glob("??/*")
    blob.unlink()
    before = contents(copy)
    target = tmp_path / "saved"
    told = run("store", "salvage", copy, target)
    assert told.exit_code == 5
    assert sorted(line.split()[:2] for line in told.stdout.splitlines()) == [["cut", "two#1"], ["lost", blob.name]]
    assert told.stderr == f"{copy} saved to {target}: 1 attempt whole, 1 cut, 0 lost; 0 blobs kept, 1 lost\n"
    assert contents(copy) == before
    with Reader.open(copy) as one, Reader.open(target) as other:
        assert list(one.records("one")) == list(other.records("one"))


def contents(store: Path) -> dict[str, bytes]:
    """Every file but the lock and what SQLite keeps beside a database that is read."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal", "lock"))
    }


def test_a_store_is_saved_into_a_new_place_only(run: Callable[..., Any], copy: Path) -> None:
    told = run("store", "salvage", copy, copy)
    assert isinstance(told.exception, CallerError)


def test_old_rollouts_that_left_are_pruned_and_listed(run: Callable[..., Any], copy: Path, tmp_path: Path) -> None:
    assert run("store", "prune", copy, "--older-than", "0s").stdout == ""
    run("export", copy, "-o", tmp_path / "a.jsonl")
    planned = run("store", "prune", copy, "--older-than", "0s", "--dry-run")
    assert planned.stdout.startswith("would delete one attempt 1 (age): ")
    told = run("store", "prune", copy, "--older-than", "0s")
    assert told.exit_code == 0
    assert told.stdout.startswith("deleted one attempt 1 (age): ")
    assert told.stderr.startswith(f"{copy}: 1 attempt deleted, 6 records and 0 blobs removed\n")
    with Reader.open(copy) as reader:
        assert [each.rollout_id for each in reader.rollouts()] == ["two"]
        assert [(each.rollout_id, each.exported_to) for each in reader.tombstones()] == [
            ("one", str(tmp_path / "a.jsonl"))
        ]
    assert run("store", "check", copy).exit_code == 0


def test_what_nobody_has_is_pruned_only_by_name_of_that(run: Callable[..., Any], copy: Path) -> None:
    told = run("store", "prune", copy, "--larger-than", "0", "--unexported")
    assert told.stdout.startswith("deleted one attempt 1 (size): ")


def test_a_length_of_time_that_is_none_is_refused(run: Callable[..., Any], copy: Path) -> None:
    assert "`--older-than` is `soon`" in str(run("store", "prune", copy, "--older-than", "soon").exception)


def test_two_prunes_at_once_delete_each_attempt_once(run: Callable[..., Any], copy: Path) -> None:
    command = [sys.executable, "-m", "turnstile.cli", "store", "prune", copy, "--older-than", "0s", "--unexported"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    told = [each.communicate(timeout=60) for each in both]
    assert [each.returncode for each in both] == [0, 0], told
    assert sum(out.count(b"deleted one") for out, _ in told) == 1
    assert run("store", "check", copy).exit_code == 0
