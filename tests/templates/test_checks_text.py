"""What templates take, lose and depend on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from turnstile.templates.certificate import Fate, Fates, Render
from turnstile.templates.checks_shapes import check_shape
from turnstile.templates.checks_text import check_fates, check_order, check_renders
from turnstile.templates.facts import probe
from turnstile.templates.render import Template
from turnstile.templates.served import Served
from turnstile.templates.shapes import SHAPES

pytestmark = pytest.mark.families

PRINTED, DROPPED, RAISES = Fate.PRINTED, Fate.DROPPED, Fate.RAISES
FATES = {
    "qwen3": Fates(PRINTED, DROPPED, PRINTED, PRINTED, PRINTED, DROPPED),
    "qwen3.5": Fates(RAISES, PRINTED, PRINTED, PRINTED, PRINTED, DROPPED),
    "llama3.1": Fates(PRINTED, Fate.AS_PYTHON, PRINTED, PRINTED, PRINTED, Fate.ABSENT),
    "deepseek-v3.1": Fates(Fate.MOVED, RAISES, DROPPED, PRINTED, PRINTED, Fate.ABSENT),
    "gpt-oss": Fates(DROPPED, RAISES, PRINTED, PRINTED, PRINTED, DROPPED),
    "smollm2": Fates(PRINTED, RAISES, DROPPED, DROPPED, PRINTED, Fate.ABSENT),
}


@pytest.mark.parametrize("family_name", FATES)
def test_what_a_template_loses_is_told(served: Callable[[str], Served], family_name: str) -> None:
    model = served(family_name)
    shapes = tuple(check_shape(model, shape, "{}") for shape in SHAPES if shape.name == "system_middle")
    assert check_fates(model, "{}", shapes) == FATES[family_name]


def test_the_plainest_renders_name_what_a_template_refuses(served: Callable[[str], Served]) -> None:
    assert [each for each in check_renders(served("qwen3"), "{}") if each.problem] == []
    refused = [each for each in check_renders(served("hermes3"), "{}") if each.problem]
    assert [each.name for each in refused] == [
        "a user message",
        "a system message and a user message",
        "no generation prompt",
    ]
    assert refused[0] == Render(
        "a user message", "The chat template refused the conversation: 'NoneType' object is not iterable"
    )


def test_a_template_that_prints_the_date_depends_on_the_clock(served: Callable[[str], Served]) -> None:
    assert "clock" in set(check_order(served("gpt-oss"), "{}"))
    assert set(check_order(served("qwen3"), "{}")) == {"tool_order", "tool_key_order", "argument_key_order"}
    assert set(check_order(served("smollm2"), "{}")) == set()


def test_a_template_that_sorts_keys_does_not_depend_on_their_order(served: Callable[[str], Served]) -> None:
    qwen3 = served("qwen3")
    template = Template("{{ tools | tojson(sort_keys=true) }}{{ messages | tojson(sort_keys=true) }}", {})
    model = Served("m", qwen3.tokenizer, template, probe(template, qwen3.tokenizer, qwen3.stop_ids), qwen3.stop_ids)
    assert set(check_order(model, "{}")) == {"tool_order"}
