"""Sixteen turns of real templates."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from turnstile.templates.certificate import Chain, ChainOutcome
from turnstile.templates.checks_chain import TURNS, check_chain
from turnstile.templates.served import Served

WITHOUT = [
    "qwen3",
    "llama3.1",
    "deepseek-v3.1",
    "gpt-oss",
    "glm4.5",
    "qwen2.5",
    "qwen3-coder",
    "gemma4",
    "smollm2",
    "kimi-k2",
]
"""Kimi K2 with the client's history, which its template is known to need."""
REWRITES_AT = {"qwen3.5": 1, "deepseek-v3": 1, "hermes3": 2}
WITH_THINKING = {"qwen3": 4, "glm4.5": 4, "gpt-oss": 4, "gemma4": 4}
"""The first turn of a user's."""

pytestmark = pytest.mark.families


@pytest.mark.parametrize("family_name", WITHOUT)
def test_ids_that_only_grew_are_one_whole_render(served: Callable[[str], Served], family_name: str) -> None:
    assert check_chain(served(family_name), "{}", "") == Chain(
        thinking=False, outcome=ChainOutcome.EXACT, turn=TURNS, detail=""
    )


@pytest.mark.parametrize("family_name", REWRITES_AT)
def test_a_chain_ends_where_the_template_first_rewrites_history(
    served: Callable[[str], Served], family_name: str
) -> None:
    chain = check_chain(served(family_name), "{}", "")
    assert (chain.outcome, chain.turn) == (ChainOutcome.REWRITES, REWRITES_AT[family_name])


@pytest.mark.parametrize("family_name", WITH_THINKING)
def test_thinking_is_rewritten_with_the_next_user_message(served: Callable[[str], Served], family_name: str) -> None:
    chain = check_chain(served(family_name), "{}", "I should look.")
    assert chain == Chain(
        thinking=True,
        outcome=ChainOutcome.REWRITES,
        turn=WITH_THINKING[family_name],
        detail="The template writes what stands before this answer in another way now",
    )
