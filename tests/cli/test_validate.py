"""`turnstile validate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.progress import Progress

from turnstile.cli.validate import RolloutsSoFar
from turnstile.errors import CallerError
from turnstile.trajectory.validate import FileCheck


@pytest.fixture
def exported(run: Callable[..., Any], store: Path, tmp_path: Path) -> Path:
    out = tmp_path / "all.jsonl"
    run("export", store, "-o", out)
    return out


def test_a_good_file_has_no_errors(run: Callable[..., Any], exported: Path) -> None:
    told = run("validate", exported)
    assert told.exit_code == 0
    assert told.stderr == f"{exported}: 2 rollouts read, 0 errors, 3 warnings\n"
    assert all(line.startswith("W") for line in told.stdout.splitlines())


def test_each_violation_is_a_line_and_the_exit_code_is_5(run: Callable[..., Any], exported: Path) -> None:
    first, second = exported.read_text().splitlines()
    spoiled = json.loads(first)
    spoiled["sequences"][0]["token_ids"].append(3)
    exported.write_text(f"{json.dumps(spoiled)}\nnot json\n{second}\n")
    told = run("validate", exported)
    assert told.exit_code == 5
    lines = told.stdout.splitlines()
    assert all(line.split()[0][0] in "EW" for line in lines)
    assert any(line.split()[:2][1] == "one" for line in lines)
    assert any(line.startswith("E101") for line in lines)


def test_a_file_of_something_else_is_not_read_to_its_end(run: Callable[..., Any], tmp_path: Path) -> None:
    prose = tmp_path / "prose.jsonl"
    prose.write_text("Call me Ishmael.\n" * 1000)
    told = run("validate", prose)
    assert (told.exit_code, len(told.stdout.splitlines())) == (5, 10)
    first, last = told.stderr.splitlines()
    assert first == f"{prose}: 0 rollouts read, 10 errors, 0 warnings"
    assert "its rest was not read" in last


def test_one_of_a_kind_is_told_in_the_singular(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("no rollout\n")
    assert ": 0 rollouts read, 1 error, 0 warnings" in run("validate", tmp_path / "x.jsonl").stderr


def test_a_store_has_to_be_exported_first(run: Callable[..., Any], store: Path) -> None:
    refused = run("validate", store).exception
    assert isinstance(refused, CallerError)
    assert "No trajectory file in " in str(refused)
    assert f"turnstile export {store} -o " in str(refused)


def test_a_file_that_is_not_there_is_a_mistake_with_a_remedy(run: Callable[..., Any], tmp_path: Path) -> None:
    told = run("validate", tmp_path / "none.jsonl")
    assert told.exit_code != 0
    assert "none.jsonl" in str(told.exception) + told.stderr
    assert not isinstance(told.exception, OSError)


def test_a_folder_is_all_trajectory_files_in_it(run: Callable[..., Any], exported: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(exported.read_bytes())
    run("export", exported, "-o", folder / "b.parquet")
    (folder / ".c.jsonl.partial").write_text("half")
    (folder / "notes.txt").write_text("not ours")
    told = run("validate", folder)
    assert told.exit_code == 5
    assert told.stderr == f"{folder}: 4 rollouts read, 2 errors, 4 warnings\n"
    assert [line for line in told.stdout.splitlines() if line.startswith("E")] == [
        "E104 one - - second rollout with this id (attempt 1) (in b.parquet)",
        "E104 two - - second rollout with this id (attempt 1) (in b.parquet)",
    ]


def test_numbers_of_unknown_meaning_are_an_error_or_on_request_a_warning(
    run: Callable[..., Any], exported: Path
) -> None:
    rollout = json.loads(exported.read_text().splitlines()[0])
    for call in rollout["calls"]:
        call["logprobs_mode"] = "unknown"
    exported.write_text(json.dumps(rollout))
    assert run("validate", exported).exit_code == 5
    told = run("validate", exported, "--allow-unknown")
    assert told.exit_code == 0
    assert sum(line.startswith("W305") for line in told.stdout.splitlines()) == len(rollout["calls"])


def test_progress_counts_rollouts_also_where_nothing_is_wrong(exported: Path) -> None:
    check = FileCheck(exported)
    column = RolloutsSoFar(check)
    bar = Progress(column)
    bar.add_task("validate")
    (task,) = bar.tasks
    before = column.render(task).plain
    list(check.violations())
    assert (before, column.render(task).plain) == ("0 rollouts", "2 rollouts")
