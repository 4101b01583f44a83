"""The played model: what the runs of the harnesses rest on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.templates.tokenizer import Tokenizer

HEAD = "<|im_start|>system\nBe brief.\n<tools>\n{}\n</tools><|im_end|>\n<|im_start|>user\nFix it<|im_end|>\n"
RESULT = "<tool_response>\nok\n</tool_response>\n"
ASK = "<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def played() -> Any:
    """The module, which is no package's."""
    spec = importlib.util.spec_from_file_location("played", Path(__file__).parent / "played.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["played"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(played: Any) -> Any:
    """One that has a shell only."""

    def shell(command: str) -> Any:
        return played.ToolUse("shell", {"command": command})

    return played.PlayedModel(
        played.Hands(shell, lambda file: shell(f"cat {file}"), lambda file, old, new: shell("sed"))
    )


@pytest.mark.parametrize(
    ("results", "turn"), [(0, "LIST"), (1, "READ"), (3, "TEST_FAILS"), (5, "TEST_PASSES"), (9, "DONE")]
)
def test_the_turn_is_told_by_the_results_that_stand_in_the_prompt(model: Any, results: int, turn: str) -> None:
    assert model.turn(HEAD + RESULT * results + ASK).name == turn


def test_a_request_without_tools_is_none_of_the_task(model: Any) -> None:
    prompt = "<|im_start|>user\nA title for: what does <tools> mean?<|im_end|>\n" + ASK
    assert model.turn(prompt) is None
    assert model.answer(prompt).endswith('{"title": "Fix calc"}<|im_end|>')


def test_an_answer_is_written_as_qwen_writes_it(model: Any) -> None:
    assert model.answer(HEAD + RESULT * 4 + ASK) == (
        "<think>\nThe operator is wrong: a - b, not a + b.\n</think>\n\nThe operator is wrong, I will edit it.\n\n"
        '<tool_call>\n{"name": "shell", "arguments": {"command": "sed"}}\n</tool_call><|im_end|>'
    )


def test_an_answer_in_code_ends_where_its_harness_has_it_stopped(played: Any) -> None:
    call = played.ToolUse("shell", {"command": "echo 'a'"})
    line = """# What it says is printed, so that I can read it.\nprint(shell(command="echo 'a'"))\n"""
    assert played.written_as_code("Look.", "First.", (call, call)) == (
        f"<think>\nLook.\n</think>\n\nFirst.\n<code>\n{line}{line}</code>"
    )


@pytest.mark.families
def test_no_answer_has_the_ids_that_a_tokenizer_would_choose_for_its_text(
    played: Any, model: Any, family: Callable[[str], Path], tokenizers_of: Callable[[Path], Tokenizer]
) -> None:
    tokenizer = tokenizers_of(family("qwen3"))
    for results in range(7):
        answer = model.answer(HEAD + RESULT * results + ASK)
        pieces = played.pieces(answer)
        assert "".join(pieces) == answer
        assert [token for piece in pieces for token in tokenizer.encode(piece).tolist()] != tokenizer.encode(
            answer
        ).tolist()
