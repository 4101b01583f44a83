from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest

from turnstile.errors import CallerError
from turnstile.trajectory.files import FileForm, write
from turnstile.trajectory.format import decode_line
from turnstile.trajectory.validate import STRANGERS_LIMIT, FileCheck, validate_file


def test_the_example_keeps_every_rule(example, lines_of):
    assert lines_of(example) == []


@pytest.mark.parametrize("ending", [form.value for form in FileForm])
def test_a_file_is_checked_record_by_record(tmp_path, example, ending):
    other = copy.deepcopy(example) | {"rollout_id": "ro-2", "reward": 0.0}
    third = copy.deepcopy(example) | {"rollout_id": "ro-3"}
    third["sequences"][0]["token_ids"][1] = 12
    path = tmp_path / f"a{ending}"
    write(path, [decode_line(json.dumps(fields).encode()) for fields in (example, other, third, example)])
    assert [str(violation) for violation in validate_file(path)] == [
        "E401 ro-3 0 7 sequence differs from the prompt that the engine ran for call c0",
        "E401 ro-3 0 19 sequence differs from the prompt that the engine ran for call c1",
        "E104 ro-0001 - - second rollout with this id (attempt 1)",
    ]


def test_lines_that_are_no_rollouts_are_named_and_the_rest_is_checked(tmp_path, example):
    path = tmp_path / "a.jsonl"
    newer = example | {"format_version": "2.0"}
    odd = example | {"attempt": 0}
    path.write_text("\n".join(["[]", json.dumps(newer), json.dumps(odd), json.dumps(example), '{"form']))
    assert [(line.code, line.message.split(":")[0]) for line in validate_file(path)] == [
        ("E101", "line 1"),
        ("E102", "line 2"),
        ("E103", "line 3"),
        ("E101", "line 5"),
        ("W802", "no learning signal in group g-17"),
    ]


def test_modes_that_differ_within_a_file_are_a_warning(tmp_path, example):
    other = copy.deepcopy(example) | {"rollout_id": "ro-2", "reward": 0.0}
    for call in other["calls"]:
        call["logprobs_mode"] = "raw"
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(example) + "\n" + json.dumps(other))
    assert [str(line) for line in validate_file(path)] == [
        "W803 - - - mixed log-probability modes: processed (after all samplers),"
        " raw (the model's own, as with a grammar or at temperature 0)"
    ]


def test_a_check_knows_how_many_rollouts_it_read(tmp_path, example):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(example) + "\nnot json\n" * STRANGERS_LIMIT)
    check = FileCheck(path)
    assert sum(found.code == "E101" for found in check.violations()) == STRANGERS_LIMIT
    assert (check.rollouts, check.gave_up) == (1, False)


def test_a_file_of_something_else_is_given_up_after_its_first_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("a line of prose\n" * 1000)
    check = FileCheck(path)
    assert [found.code for found in check.violations()] == ["E101"] * STRANGERS_LIMIT
    assert (check.rollouts, check.gave_up) == (0, True)


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(CallerError, match="is no file"):
        list(validate_file("nowhere.jsonl"))


def test_every_code_has_its_place_in_the_reference():
    root = Path(__file__).parents[2]
    source = "".join(path.read_text() for path in (root / "src/turnstile/trajectory").glob("*.py"))
    given = set(re.findall(r'"([EW][1-8]\d\d)"', source))
    listed = set(
        re.findall(r"^\| ([EW]\d{3}) \|", (root / "docs/reference/validate-codes.md").read_text(), re.MULTILINE)
    )
    assert given == listed


def test_a_segment_that_names_no_call_ends_no_check(tmp_path, example):
    path = tmp_path / "a.jsonl"
    example["sequences"][0]["segments"][2]["call"] = 9
    path.write_text(json.dumps(example))
    assert [(line.code, line.message) for line in validate_file(path)] == [
        ("E105", "index segments.call=9 out of range"),
        ("W802", "no learning signal in group g-17: one rollout"),
    ]
