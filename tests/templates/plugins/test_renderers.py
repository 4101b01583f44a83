"""An independent check: hand-written bridges with the same held ids (docs/decisions/0017)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

from turnstile.templates.checks_plugins import questions_of
from turnstile.templates.plugins.renderers import Renderers
from turnstile.templates.second_opinion import Declined
from turnstile.templates.served import Served
from turnstile.tokens import IdRun

pytestmark = [
    pytest.mark.families,
    pytest.mark.skipif(
        importlib.util.find_spec("renderers") is None, reason="the package `renderers` is not installed"
    ),
]
LATE = ("system_middle",)
TABLE = {
    # family: (their name, same, different, refused); it refuses by its own rule of thinking retention.
    "qwen3": ("qwen3", 10, (), 12),
    "qwen3-vl": ("qwen3-vl", 21, LATE, 0),
    "qwen3.5": ("qwen3.5", 10, (), 11),
    "qwen3.8": ("qwen3.8", 21, (), 0),
    "llama3.1": ("llama-3", 20, (), 0),
    "gemma4": ("gemma4", 21, (), 1),
    "nemotron3-nano": ("nemotron-3", 10, (), 12),
    "deepseek-v4": ("deepseek-v4", 19, LATE, 2),
}


@pytest.mark.parametrize("family_name", TABLE)
def test_hand_written_bridges_agree_but_where_they_print_what_the_template_drops(
    served: Callable[[str], Served], family_name: str
) -> None:
    model = served(family_name)
    name, same, different, refused = TABLE[family_name]
    variant = next(each for each in Renderers().variants(model) if each.name == name)
    asked = tuple(questions_of(model, "{}"))
    found = {each.shape: variant.next_prompt(each.asked) for each in asked}
    assert (
        sum(found[each.shape] == each.ours_T for each in asked),
        tuple(each.shape for each in asked if found[each.shape] not in (Declined(), each.ours_T)),
        sum(found[each.shape] == Declined() for each in asked),
    ) == (same, different, refused)


@pytest.mark.parametrize(
    ("family_name", "their_name", "same"), [("deepseek-v3", "deepseek-v3", 9), ("kimi-k2",) * 2 + (11,)]
)
def test_a_bridge_for_another_revision_of_the_template_gives_other_ids(
    served: Callable[[str], Served], family_name: str, their_name: str, same: int
) -> None:
    model = served(family_name)
    variant = next(each for each in Renderers().variants(model) if each.name == their_name)
    asked = tuple(questions_of(model, "{}"))
    found = {each.shape: variant.next_prompt(each.asked) for each in asked}
    assert sum(found[each.shape] == each.ours_T for each in asked) == same
    assert Declined() not in found.values()


def test_a_vocabulary_without_their_control_tokens_has_no_bridge(served: Callable[[str], Served]) -> None:
    assert tuple(Renderers().variants(served("smollm2"))) == ()


def test_what_it_holds_stands_unchanged_in_front(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    variant = next(each for each in Renderers().variants(model) if each.name == "qwen3")
    question = next(each for each in questions_of(model, "{}") if each.shape == "tool_result")
    found = variant.next_prompt(question.asked)
    held = question.asked.prompt_T + question.asked.sampled_S
    assert isinstance(found, IdRun)
    assert found.slice(0, len(held)) == held
