"""`turnstile drift`."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import CallerError, StoreError
from turnstile.store import Journal
from turnstile.store.schema import JOURNAL_FILE


@pytest.fixture
def exported(run: Callable[..., Any], store: Path, tmp_path: Path) -> Path:
    out = tmp_path / "all.jsonl"
    run("export", store, "-o", out)
    return out


def test_a_store_is_reported_in_words(run: Callable[..., Any], store: Path) -> None:
    told = run("drift", store)
    assert told.exit_code == 0
    assert "sampled tokens" in told.stdout
    assert "By kind: retokenization" in told.stdout
    assert "one, sequence of c1: retokenization at token " in told.stdout


def test_a_difference_shows_the_ids_of_both_sides_below_each_other_in_80_columns(
    run: Callable[..., Any], store: Path
) -> None:
    lines = run("drift", store).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    at = next(number for number, line in enumerate(lines) if line.startswith("one, sequence of c1"))
    held, rendered = lines[at + 1 : at + 3]
    assert re.fullmatch(r"  held       \[\d+, \d+(, \d+)*\]  '.*Hello<\|im_end\|>.*", held)
    assert re.fullmatch(r"  from text  \[\d+\] +'.*Hello<\|im_end\|>.*", rendered)
    assert held.index("'") == rendered.index("'")


def test_a_program_gets_one_object_a_rollout(run: Callable[..., Any], store: Path) -> None:
    reports = [json.loads(line) for line in run("drift", store, "--json").stdout.splitlines()]
    assert [(each["rollout_id"], each["calls_compared"], each["calls_differing"]) for each in reports] == [
        ("one", 2, 1),
        ("two", 2, 1),
    ]
    assert all(0 < each["wrong"] <= each["sampled"] for each in reports)


def test_a_file_needs_a_tokenizer_and_then_says_what_the_store_says(
    run: Callable[..., Any], store: Path, exported: Path, tools_folder: Path
) -> None:
    refused = run("drift", exported)
    assert isinstance(refused.exception, CallerError)
    assert "--tokenizer" in str(refused.exception)

    def wrong(*arguments: object) -> list[int]:
        return [json.loads(line)["wrong"] for line in run("drift", *arguments, "--json").stdout.splitlines()]

    assert wrong(exported, "--tokenizer", tools_folder) == wrong(store)


def test_what_is_no_store_is_a_mistake_with_a_remedy(run: Callable[..., Any], tmp_path: Path) -> None:
    assert isinstance(run("drift", tmp_path).exception, StoreError)
    assert run("drift", tmp_path / "nowhere").exit_code == 2


def test_of_an_empty_store_nothing_is_claimed(run: Callable[..., Any], tmp_path: Path) -> None:
    Journal.open(tmp_path).close()
    told = run("drift", tmp_path)
    assert (told.exit_code, told.stdout) == (0, f"No rollouts in {tmp_path}.\n")
    assert run("drift", tmp_path, "--json").stdout == ""


def rows(run: Callable[..., Any], store: Path, by: str) -> list[Any]:
    return [json.loads(line) for line in run("drift", store, "--by", by, "--json").stdout.splitlines()]


def test_figures_by_call_rollout_group_and_store_add_up_to_each_other(run: Callable[..., Any], store: Path) -> None:
    calls, rollouts, groups, (whole,) = (rows(run, store, by) for by in ("call", "rollout", "group", "store"))
    assert [(each["rollout_id"], each["call"]["call_id"], each["call"]["kind"]) for each in calls] == [
        ("one", "c0", None), ("one", "c1", "retokenization"), ("two", "c0", None), ("two", "c1", "retokenization"),
    ]  # fmt: skip
    assert [(each["group_id"], each["rollouts"]) for each in groups] == [("g", 1), ("h", 1)]
    wrong = whole["figures"]["prompt_wrong"]
    assert wrong == sum(each["call"]["wrong"] for each in calls) > 0
    assert wrong == sum(each["prompt_wrong"] for each in rollouts)
    assert wrong == sum(each["figures"]["prompt_wrong"] for each in groups)
    assert (whole["rollouts"], whole["figures"]["calls"], whole["figures"]["calls_compared"]) == (2, 4, 4)


@pytest.mark.parametrize(
    ("by", "line"),
    [
        ("call", r"one +c1 +spliced +\d+ +6 +6 +retokenization +\d+"),
        ("rollout", r"one +2/2 calls +1 +10 +10 +100\.0% +retokenization 10"),
        ("group", r"g +2/2 calls +1 +10 +10 +100\.0% +retokenization 10"),
        ("store", r"Compared: 4 of 4 calls, 2 of 2 sequences, in 2 rollouts\."),
    ],
)
def test_a_person_gets_a_row_for_each(run: Callable[..., Any], store: Path, by: str, line: str) -> None:
    told = run("drift", store, "--by", by).stdout.splitlines()
    assert [each for each in told if re.fullmatch(line, each.rstrip())], told


@pytest.fixture
def copied(store: Path, tmp_path: Path) -> Path:
    """The store, to be broken."""
    return Path(shutil.copytree(store, tmp_path / "copied"))


def change(store: Path, *statement: object) -> None:
    with closing(sqlite3.connect(store / JOURNAL_FILE)) as connection, connection:
        connection.execute(*statement)


def test_a_damaged_rollout_is_counted_as_not_compared_and_costs_no_other(run: Callable[..., Any], copied: Path) -> None:
    change(copied, "UPDATE records SET body = x'00' WHERE rollout_id = 'one' AND seq = 2")
    told = run("drift", copied, "--json")
    assert told.exit_code == 1
    assert re.search(r"turnstile: not compared: one attempt 1: Record 2 of rollout `one` .* is damaged", told.stderr)
    one, two = (json.loads(line) for line in told.stdout.splitlines())
    assert (one["calls"], one["calls_compared"], one["group_id"]) == (2, 0, "g")
    assert "Record 2" in one["problem"]
    assert (two["calls"], two["calls_compared"], two["problem"]) == (2, 2, "")
    (whole,) = rows(run, copied, "store")
    assert (whole["rollouts"], whole["not_compared"], whole["figures"]["calls_compared"]) == (2, 1, 2)
    assert [each["not_compared"] for each in rows(run, copied, "group")] == [1, 0]
    assert "Compared: 2 of 4 calls" in run("drift", copied).stdout


def test_a_rollout_whose_opening_is_lost_is_counted_as_not_compared(run: Callable[..., Any], copied: Path) -> None:
    change(copied, "DELETE FROM records WHERE rollout_id = 'one' AND seq = 1")
    told = run("drift", copied, "--by", "store", "--json")
    assert (told.exit_code, json.loads(told.stdout)["not_compared"]) == (1, 1)
    assert "do not begin with its opening" in told.stderr


def test_what_was_rendered_with_a_tokenizer_that_the_store_lacks_is_counted_as_not_compared(
    run: Callable[..., Any], copied: Path
) -> None:
    change(copied, "DELETE FROM meta WHERE key LIKE 'model_files:%'")
    told = run("drift", copied, "--json")
    assert told.exit_code == 1
    reports = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(each["calls"], each["calls_compared"]) for each in reports] == [(2, 0), (2, 0)]
    assert [(each["sequences"], each["sequences_compared"]) for each in reports] == [(1, 0), (1, 0)]
    assert all(each["problem"].startswith("The store has no tokenizer") for each in reports)
    assert "No drift" not in run("drift", copied).stdout


def test_a_file_with_rollouts_of_another_model_too_compares_those_that_fit(
    run: Callable[..., Any], exported: Path, tools_folder: Path, tmp_path: Path
) -> None:
    own, other = exported.read_text().splitlines()
    strange = json.loads(other)
    strange["heads"][0]["tokenizer_sha256"] = "0" * 64
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text(f"{own}\n{json.dumps(strange)}\n")
    told = run("drift", mixed, "--tokenizer", tools_folder, "--json")
    assert told.exit_code == 1
    first, second = (json.loads(line) for line in told.stdout.splitlines())
    assert (first["sequences_compared"], second["sequences_compared"], second["sequences"]) == (1, 0, 1)
    assert "The tokenizer given" in second["problem"]


def test_a_file_of_which_nothing_fits_the_given_model_is_a_mistake_of_the_command(
    run: Callable[..., Any], exported: Path, family: Callable[[str], Path]
) -> None:
    told = run("drift", exported, "--tokenizer", family("smollm2"))
    assert isinstance(told.exception, CallerError)
    assert told.exception.code == "model_mismatch"
