"""Whether another tokenizer means the same by recorded ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import CallerError
from turnstile.history.forest import Forest
from turnstile.reports.same_tokens import recorded_ids, refuse_other_tokens
from turnstile.store import Reader
from turnstile.templates.tokenizer import Tokenizer


@pytest.fixture
def forest(left: Any, reader: Reader) -> Forest:
    return Forest.of(reader.records(left.rollout_id))


def test_a_tokenizer_with_the_same_tokens_is_taken(
    forest: Forest, tools_folder: Path, tokenizers_of: Callable[[Path], Tokenizer]
) -> None:
    own = tokenizers_of(tools_folder)
    refuse_other_tokens(forest, own, own)


def test_a_tokenizer_with_other_tokens_is_refused_by_the_first_id_that_is_another(
    forest: Forest, tools_folder: Path, tokenizers_of: Callable[[Path], Tokenizer], family: Callable[[str], Path]
) -> None:
    with pytest.raises(
        CallerError, match=r"Id 1 is the control token '<\|im_start\|>' in the rollout's own"
    ) as refused:
        refuse_other_tokens(forest, tokenizers_of(tools_folder), tokenizers_of(family("qwen3")))
    assert refused.value.code == "tokenizer_mismatch"


def test_every_id_of_prompts_and_answers_is_recorded(forest: Forest) -> None:
    assert recorded_ids(forest) == frozenset(token for node in forest.nodes for token in node.held_T)
