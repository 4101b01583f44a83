"""`turnstile drift`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import CallerError, StoreError
from turnstile.store import Journal


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
