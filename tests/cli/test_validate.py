"""`turnstile validate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def exported(run: Callable[..., Any], store: Path, tmp_path: Path) -> Path:
    out = tmp_path / "all.jsonl"
    run("export", store, "-o", out)
    return out


def test_a_good_file_has_no_errors(run: Callable[..., Any], exported: Path) -> None:
    told = run("validate", exported)
    assert told.exit_code == 0
    assert told.stderr.startswith(f"{exported}: 0 errors, ")
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


def test_a_file_that_is_not_there_is_a_mistake_with_a_remedy(run: Callable[..., Any], tmp_path: Path) -> None:
    told = run("validate", tmp_path / "none.jsonl")
    assert told.exit_code != 0
    assert "none.jsonl" in str(told.exception) + told.stderr
    assert not isinstance(told.exception, OSError)
