"""`turnstile export`."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import CallerError, StoreError
from turnstile.journal import RolloutFinished, RolloutOpened, RolloutStatus
from turnstile.store import Journal, Reader
from turnstile.trajectory.files import read
from turnstile.trajectory.validate import validate_file


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.zst", "parquet"])
def test_everything_is_written_and_says_how_much(
    run: Callable[..., Any], store: Path, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / f"all.{suffix}"
    told = run("export", store, "-o", out)
    assert (told.exit_code, told.stdout, told.stderr) == (
        0,
        "",
        f"2 rollouts written to {out}: 20 sampled tokens = 20 trainable, 0 masked, 0 discarded\n"
        "1 rollout still open: what comes later is not in the file\n",
    )
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
    counted = "10 sampled tokens = 10 trainable, 0 masked, 0 discarded"
    assert told.stderr == f"1 rollout written to {tmp_path / 'x.jsonl'}: {counted}\n"


def test_a_store_that_is_not_there_and_a_form_that_is_not_known_are_mistakes_with_a_remedy(
    run: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    assert isinstance(run("export", tmp_path, "-o", tmp_path / "x.jsonl").exception, StoreError)
    assert isinstance(run("export", store, "-o", tmp_path / "x.csv").exception, CallerError)
    assert isinstance(run("export", store, "-o", tmp_path / "no" / "x.jsonl").exception, StoreError)


def test_a_file_is_converted_to_the_other_form_and_back_without_loss(
    run: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    first, columns, again = tmp_path / "a.jsonl", tmp_path / "b.parquet", tmp_path / "c.jsonl"
    for source, output in ((store, first), (first, columns), (columns, again)):
        assert run("export", source, "-o", output).exit_code == 0
    assert again.read_bytes() == first.read_bytes()


def test_some_rollouts_are_taken_out_of_a_folder_of_files(run: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "shards", tmp_path / "out.jsonl"
    folder.mkdir()
    run("export", store, "-o", folder / "1.parquet", "--rollout", "one")
    run("export", store, "-o", folder / "2.jsonl.zst", "--rollout", "two")
    assert run("export", folder, "-o", out, "--group", "h").exit_code == 0
    assert [each.rollout_id for each in read(out)] == ["two"]
    for wanted, word in (("--rollout", "no rollout `nobody`"), ("--group", "no rollout in group `nobody`")):
        refused = run("export", folder, "-o", tmp_path / "x.jsonl", wanted, "nobody").exception
        assert isinstance(refused, CallerError)
        assert word in str(refused)
        assert not (tmp_path / "x.jsonl").exists()


def test_a_line_that_cannot_be_read_is_named_and_costs_no_other(
    run: Callable[..., Any], store: Path, tmp_path: Path
) -> None:
    spoiled = tmp_path / "a.jsonl"
    run("export", store, "-o", spoiled)
    spoiled.write_text("not json\n" + spoiled.read_text())
    told = run("export", spoiled, "-o", tmp_path / "b.parquet")
    assert told.exit_code == 1
    assert f"turnstile: not written: line 1 of {spoiled}: not a rollout object" in told.stderr
    assert [each.rollout_id for each in read(tmp_path / "b.parquet")] == ["one", "two"]


@pytest.mark.parametrize("weights", ["split", "rollout", "sequence"])
def test_how_tokens_weigh_is_chosen_and_recorded(
    run: Callable[..., Any], store: Path, tmp_path: Path, weights: str
) -> None:
    out = tmp_path / "a.parquet"
    options = ["--weights", weights, "--train-compaction", "--train-unselected"]
    assert run("export", store, "-o", out, *options).exit_code == 0
    assert [str(each) for each in validate_file(out) if each.code.startswith("E")] == []
    said = {"weights": weights, "compaction": "trained", "unselected": "trained"}
    assert [each.extra["turnstile.export"] for each in read(out)] == [said, said]
    total = 10.0 if weights == "split" else 1.0
    assert [sum(each.sequences[0].weights_T()) for each in read(out)] == [pytest.approx(total)] * 2


def test_a_file_keeps_the_weights_that_it_was_made_with(run: Callable[..., Any], store: Path, tmp_path: Path) -> None:
    run("export", store, "-o", tmp_path / "a.jsonl")
    refused = run("export", tmp_path / "a.jsonl", "-o", tmp_path / "b.jsonl", "--weights", "rollout").exception
    assert isinstance(refused, CallerError)
    assert "chosen when a store is exported" in str(refused)


async def test_case_l4_a_rollout_without_a_sequence_is_written_and_told(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    at = datetime(2026, 12, 1, tzinfo=UTC)
    journal = Journal.open(tmp_path / "store")
    await journal.append(RolloutOpened("bare", 1, at, group_id="g"))
    await journal.append(RolloutFinished("bare", at, RolloutStatus.FAILED))
    journal.close()
    out = tmp_path / "a.jsonl"
    told = run("export", tmp_path / "store", "-o", out)
    assert told.stderr.splitlines()[1:] == ["1 rollout without a sequence: 1 failed"]
    assert [(each.status, each.group_id, each.sequences) for each in read(out)] == [("failed", "g", ())]


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    copy = shutil.copytree(store, tmp_path / "copy")
    with sqlite3.connect(copy / "journal.sqlite3") as connection:
        connection.execute("DELETE FROM exports")
    connection.close()
    return copy


def marks(store: Path) -> dict[str, str | None]:
    with Reader.open(store) as reader:
        return {each.rollout_id: each.exported_to for each in reader.rollouts()}


def test_what_was_closed_is_noted_as_exported_with_its_file(
    run: Callable[..., Any], copy: Path, tmp_path: Path
) -> None:
    assert run("export", copy, "-o", tmp_path / "a.jsonl").exit_code == 0
    assert marks(copy) == {"one": str(tmp_path / "a.jsonl"), "two": None}


def test_a_look_that_is_not_to_count_is_not_noted(run: Callable[..., Any], copy: Path, tmp_path: Path) -> None:
    assert run("export", copy, "-o", tmp_path / "a.jsonl", "--no-mark").exit_code == 0
    assert marks(copy) == {"one": None, "two": None}


def test_a_trainers_own_shape_is_noted_unless_something_was_left_out(
    run: Callable[..., Any], copy: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.jsonl"
    told = run("export", copy, "-o", out, "--for", "tinker", "--advantage", "reward", "--drop", "rollout_running")
    assert told.exit_code == 0, told.stderr
    assert marks(copy)["one"] is (None if "left out" in told.stderr else str(out))
    only = run("export", copy, "-o", out, "--for", "tinker", "--advantage", "reward", "--rollout", "one")
    assert only.exit_code == 0, only.stderr
    assert marks(copy) == {"one": str(out), "two": None}


def test_a_store_of_an_earlier_version_is_exported_and_says_that_it_is_not_noted(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    old = shutil.copytree(Path(__file__).parent.parent / "store" / "stores" / "v1", tmp_path / "old")
    told = run("export", old, "-o", tmp_path / "a.jsonl")
    assert told.exit_code == 0
    assert "note: not noted in the store as exported: The journal" in told.stderr
    assert [each.rollout_id for each in read(tmp_path / "a.jsonl")] == ["closed", "open"]
