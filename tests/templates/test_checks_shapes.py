"""Single verdicts; the whole table is in `test_certify.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from turnstile.templates.certificate import Repeat, ShapeVerdict, Verdict
from turnstile.templates.checks_shapes import (
    WholeRender,
    as_sampled,
    check_repeats,
    check_shape,
    endings,
    probe_texts,
    shapes_of,
    whole_render,
)
from turnstile.templates.facts import probe
from turnstile.templates.render import Template
from turnstile.templates.served import Served
from turnstile.templates.shapes import ALL_SHAPES, IMAGE_SHAPES, SHAPES
from turnstile.tokens import IdRun

REFUSED = "The chat template refused the conversation"
SHAPE = {shape.name: shape for shape in ALL_SHAPES}

pytestmark = pytest.mark.families


@pytest.mark.parametrize(
    ("family_name", "expected"),
    [
        (
            "qwen3",
            ShapeVerdict("tool_result_think", Verdict.EXACT, "args", "stable", renders=True, lost=False, detail=""),
        ),
        ("qwen3", ShapeVerdict("user_after_think", Verdict.EXACT, "content", "H", renders=True, lost=False, detail="")),
        (
            "smollm2",
            ShapeVerdict("tool_result_think", Verdict.EXACT, "content", "n/a", renders=True, lost=False, detail=""),
        ),
        (
            "gpt-oss",
            ShapeVerdict("system_middle", Verdict.EXACT, "content", "stable", renders=True, lost=True, detail=""),
        ),
        (
            "deepseek-v3",
            ShapeVerdict(
                "deep_tool",
                Verdict.NEEDS_HISTORY,
                "args",
                "gG",
                renders=True,
                lost=False,
                detail="What stands behind an answer depends on the turns before",
            ),
        ),
        (
            "llama3.1",
            ShapeVerdict(
                "parallel_two_results",
                Verdict.UNPROVEN,
                "content",
                "unknown",
                renders=False,
                lost=False,
                detail=f"{REFUSED}: This model only supports single tool-calls at once!",
            ),
        ),
        (
            "qwen3.5",
            ShapeVerdict(
                "system_middle",
                Verdict.REFUSED,
                "",
                "unknown",
                renders=False,
                lost=False,
                detail=f"{REFUSED}: System message must be at the beginning.",
            ),
        ),
        (
            "gemma4",
            ShapeVerdict(
                "tool_result_with_content",
                Verdict.DIFFERENT,
                "args",
                "stable",
                renders=True,
                lost=False,
                detail="The template writes the sampled answer, or what follows it, in another place or way",
            ),
        ),
    ],
    ids=lambda value: value.shape if isinstance(value, ShapeVerdict) else value,
)
def test_a_shape_has_one_verdict(served: Callable[[str], Served], family_name: str, expected: ShapeVerdict) -> None:
    assert check_shape(served(family_name), SHAPE[expected.shape], "{}") == expected


def test_template_arguments_are_part_of_what_is_checked(served: Callable[[str], Served]) -> None:
    shape = SHAPE["user_after_answer"]
    assert check_shape(served("qwen3"), shape, "{}").stability == "H"
    assert check_shape(served("qwen3"), shape, '{"enable_thinking":false}').stability == "GH"


def test_what_cannot_be_found_in_a_whole_render_is_unproven(served: Callable[[str], Served]) -> None:
    qwen3 = served("qwen3")
    template = Template(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{{ m.tool_calls }}{{ m.tool_calls }}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
        {},
    )
    model = Served("m", qwen3.tokenizer, template, probe(template, qwen3.tokenizer, qwen3.stop_ids), qwen3.stop_ids)
    assert check_shape(model, SHAPE["user_after_answer"], "{}").verdict is Verdict.EXACT
    assert check_shape(model, SHAPE["tool_result"], "{}") == ShapeVerdict(
        "tool_result",
        Verdict.UNPROVEN,
        "content",
        "unknown",
        renders=True,
        lost=False,
        detail="The template prints the answer 2 times",
    )


def test_a_template_for_tools_is_checked_with_the_shapes_that_have_tools(served: Callable[[str], Served]) -> None:
    plain, tools = served("qwen2.5"), served("qwen3")
    model = Served("m", tools.tokenizer, plain.template, plain.facts, tools.stop_ids, with_tools=tools)
    assert check_shape(model, SHAPE["user_after_answer"], "{}").stability == "stable"
    assert check_shape(model, SHAPE["user_after_answer_tools"], "{}").stability == "H"


def test_counters_show_behind_a_tool_cycle(served: Callable[[str], Served]) -> None:
    found = [each for each in check_repeats(served("deepseek-v3"), "{}") if each.verdict is not Verdict.EXACT]
    tools = ("tool_result", "tool_result_think", "parallel_two_results")
    assert found == [Repeat(name, "tool_cycle", Verdict.NEEDS_HISTORY) for name in tools]


def test_where_history_has_another_ending_the_sampled_one_does_not_stay(served: Callable[[str], Served]) -> None:
    model = served("gpt-oss")
    history_end = model.tokenizer.id_of("<|end|>") or 0
    assert "<|end|>" in endings(model)
    assert as_sampled(model, IdRun.of([7, history_end])) == (IdRun.of([7, min(model.stop_ids)]), 1)
    called = IdRun.of([7, model.tokenizer.id_of("<|call|>") or 0])
    assert as_sampled(model, called) == (called, 2)


def test_a_whole_render_is_split_at_the_answers_end(served: Callable[[str], Served]) -> None:
    model = served("qwen3")
    whole = whole_render(model, SHAPE["user_after_answer"], "{}")
    assert isinstance(whole, WholeRender)
    assert model.tokenizer.decode(whole.expected_A) == (
        "\n<|im_start|>user\nGood. Show me the first.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert model.tokenizer.decode(whole.held_T).endswith("<|im_end|>")
    assert whole.text in set(probe_texts(model, "{}"))


@pytest.mark.parametrize("family_name", ["qwen3-vl", "qwen2.5-vl"])
def test_pictures_that_are_numbered_need_the_history_where_one_came_before(
    served: Callable[[str], Served], family_name: str
) -> None:
    verdicts = [check_shape(served(family_name), shape, '{"add_vision_id":true}').verdict for shape in IMAGE_SHAPES]
    assert verdicts == [Verdict.EXACT, Verdict.NEEDS_HISTORY, Verdict.NEEDS_HISTORY]


def test_a_tool_result_whose_image_is_not_printed_is_refused(served: Callable[[str], Served]) -> None:
    verdict = check_shape(served("mistral-small-3.2"), SHAPE["tool_image"], "{}")
    assert verdict == ShapeVerdict(
        "tool_image",
        Verdict.REFUSED,
        "",
        "unknown",
        renders=False,
        lost=False,
        detail="The template does not print an image in such a message",
    )


def test_shapes_with_images_are_checked_where_the_template_takes_them(served: Callable[[str], Served]) -> None:
    assert (shapes_of(served("qwen3")), shapes_of(served("qwen3.5"))) == (SHAPES, ALL_SHAPES)
