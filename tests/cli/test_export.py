"""`turnstile export`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import CallerError, StoreError
from turnstile.store import Journal
from turnstile.trajectory.files import read


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.zst", "parquet"])
def test_everything_is_written_and_says_how_much(
    run: Callable[..., Any], store: Path, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"all.{suffix}"
    told = run("export", store, "-o", out)
    assert (told.exit_code, told.stdout, told.stderr) == (0, "", f"2 rollouts written to {out}\n")
    assert [(each.rollout_id, each.status, len(each.calls)) for each in read(out)] == [
        ("one", "completed", 2),
        ("two", "running", 2),
    ]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--rollout", "two"], ["two"]),
        (["--rollout", "two", "--rollout", "one"], ["one", "two"]),
        (["--group", "g"], ["one"]),
    ],
)
def test_some_are_chosen_by_name_or_group(
    run: Callable[..., Any], store: Path, tmp_path: Path, options: list[str], names: list[str]
) -> None:
    out = tmp_path / "some.jsonl"
    assert run("export", store, "-o", out, *options).exit_code == 0
    assert [each.rollout_id for each in read(out)] == names


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        (["--rollout", "nobody"], CallerError, "nobody"),
        (["--rollout", "one", "--group", "h"], CallerError, "group `h`"),
        (["--group", "nobody"], CallerError, "no rollout in group `nobody`"),
    ],
)
def test_a_rollout_that_is_not_there_is_named(
    run: Callable[..., Any], store: Path, tmp_path: Path, arguments: list[str], error: type, word: str
) -> None:
    told = run("export", store, "-o", tmp_path / "x.jsonl", *arguments)
    assert isinstance(told.exception, error)
    assert word in str(told.exception)
    assert not (tmp_path / "x.jsonl").exists()


def test_a_store_without_rollouts_says_so_and_writes_nothing(run: Callable[..., Any], tmp_path: Path) -> None:
    Journal.open(tmp_path).close()
    refused = run("export", tmp_path, "-o", tmp_path / "x.jsonl").exception
    assert isinstance(refused, CallerError)
    assert str(refused).startswith(f"No rollouts in {tmp_path}. ")
    assert not (tmp_path / "x.jsonl").exists()


def test_one_rollout_is_told_in_the_singular_and_without_a_terminal_nothing_else(
    run: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    told = run("export", store, "-o", tmp_path / "x.jsonl", "--rollout", "one")
    assert told.stderr == f"1 rollout written to {tmp_path / 'x.jsonl'}\n"


def test_a_store_that_is_not_there_and_a_form_that_is_not_known_are_mistakes_with_a_remedy(
    run: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    assert isinstance(run("export", tmp_path, "-o", tmp_path / "x.jsonl").exception, StoreError)
    assert isinstance(run("export", store, "-o", tmp_path / "x.csv").exception, CallerError)
    assert isinstance(run("export", store, "-o", tmp_path / "no" / "x.jsonl").exception, StoreError)
