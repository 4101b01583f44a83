"""The coding agent on a scripted model: an ordinary program on the OpenAI SDK."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from text import agent
from text.agent import Ended, Model, solve, tools_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "solution.py").write_text("def total(a, b):\n    return a - b\n")
    return tmp_path


def solved(scripted: Any, folder: Path) -> Ended:
    model = Model(scripted.url, "the-key", "policy")
    return solve(model, "Fix it.", tools_of(folder, lambda where: f"tests of {where.name}"))


def test_it_reads_writes_tests_and_ends_with_an_answer(scripted: Any, folder: Path) -> None:
    scripted.calls("read_file", '{"path": "solution.py"}')
    scripted.calls("write_file", json.dumps({"path": "solution.py", "content": "new\n"}))
    scripted.calls("run_tests", "{}")
    scripted.says("Done.")
    assert solved(scripted, folder) == Ended(turns=4, clean=True)
    results = [each["content"] for each in scripted.requests[-1]["messages"] if each["role"] == "tool"]
    assert results == ["def total(a, b):\n    return a - b\n", "ok", f"tests of {folder.name}"]
    assert (folder / "solution.py").read_text() == "new\n"


def test_it_sends_its_key_and_each_call_back_as_it_was_written(scripted: Any, folder: Path) -> None:
    scripted.calls("run_tests", "{ }")
    scripted.says("Done.")
    solved(scripted, folder)
    assert scripted.keys == ["Bearer the-key"] * 2
    (call,) = scripted.requests[1]["messages"][1]["tool_calls"]
    assert call["function"] == {"name": "run_tests", "arguments": "{ }"}


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("read_file", '{"path": "../secret"}', "error: bad arguments"),
        ("read_file", '{"path": "none.py"}', "error: no such file"),
        ("read_file", "{}", "error: bad arguments"),
        ("read_file", "[]", "error: bad arguments"),
        ("read_file", "not JSON", "error: bad arguments"),
        ("write_file", '{"path": 3, "content": "x"}', "error: bad arguments"),
        ("delete", "{}", "error: no such tool"),
    ],
)
def test_a_call_that_cannot_be_made_is_answered(
    scripted: Any, folder: Path, name: str, arguments: str, result: str
) -> None:
    scripted.calls(name, arguments)
    scripted.says("Done.")
    solved(scripted, folder)
    assert scripted.last_result() == result


def test_an_answer_that_was_cut_off_is_no_clean_end(scripted: Any, folder: Path) -> None:
    scripted.says("Do", finish="length")
    assert solved(scripted, folder) == Ended(turns=1, clean=False)


def test_a_broken_call_is_no_clean_end(scripted: Any, folder: Path) -> None:
    scripted.says('<tool_call>\n{"name": "run_tests"\n</tool_call>')
    assert solved(scripted, folder) == Ended(turns=1, clean=False)


def test_it_stops_after_eight_turns(scripted: Any, folder: Path) -> None:
    for _ in range(9):
        scripted.calls("run_tests", "{}")
    assert solved(scripted, folder) == Ended(turns=8, clean=False)
    assert len(scripted.requests) == 8


def test_its_program_imports_nothing_of_turnstile() -> None:
    tree = ast.parse(Path(agent.__file__).read_text())
    names = [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    names += [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    assert not [name for name in names if name.partition(".")[0] in ("turnstile", "loop", "torch", "trl")]
