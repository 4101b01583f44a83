"""The shapes as data."""

from __future__ import annotations

import json

import pytest

from turnstile.conversation import Role
from turnstile.generation import Cut
from turnstile.templates.shapes import ALL_SHAPES, IMAGE_SHAPES, PASTS, RARE, REPEATED, SHAPES, Shape, without_calls


def name(shape: Shape) -> str:
    return shape.name


def test_there_are_the_24_shapes_that_the_bridge_table_is_about() -> None:
    assert sorted(map(name, SHAPES)) == sorted(
        [
            "user_after_answer",
            "user_after_answer_tools",
            "tool_result",
            "tool_result_with_content",
            "tool_result_think",
            "user_after_think",
            "parallel_two_results",
            "parallel_same_tool",
            "result_then_user",
            "two_users",
            "system_middle",
            "tool_text_odd",
            "tool_text_unicode",
            "tool_text_empty",
            "user_ws",
            "user_special_text",
            "user_parts",
            "deep_tool",
            "deep_user",
            "nosys_tool",
            "prefill",
            "prefill_after_tool",
            "trunc_content",
            "trunc_no_tools",
        ]
    )


def test_there_are_three_more_for_templates_that_take_images() -> None:
    assert tuple(map(name, IMAGE_SHAPES)) == ("user_image", "user_image_deep", "tool_image")
    assert [sum(len(message.images) for message in shape.new_M) for shape in IMAGE_SHAPES] == [1, 1, 1]
    assert [sum(len(message.images) for message in shape.history_M) for shape in IMAGE_SHAPES] == [0, 1, 1]
    assert ALL_SHAPES == SHAPES + IMAGE_SHAPES


@pytest.mark.parametrize("shape", ALL_SHAPES, ids=name)
def test_the_answers_body_ends_in_a_word_that_occurs_nowhere_else(shape: Shape) -> None:
    assert shape.call("{}").messages[len(shape.history_M)] == shape.answer
    others = (*shape.history_M, *shape.new_M)
    assert RARE not in repr(others)
    body = shape.answer.calls[-1].arguments if shape.answer.calls else shape.answer.text
    assert body.rstrip('"}').endswith(RARE)
    assert without_calls(shape).answer.text.count(RARE) == 1


@pytest.mark.parametrize("shape", ALL_SHAPES, ids=name)
def test_calls_are_as_the_strictest_template_wants_them(shape: Shape) -> None:
    messages = shape.call("{}").messages
    calls = {call.call_id: call for message in messages for call in message.calls}
    assert all(len(call_id) == 9 and call_id.isalnum() for call_id in calls)
    assert all(isinstance(json.loads(call.arguments), dict) for call in calls.values())
    assert all(message.call_id in calls for message in messages if message.role is Role.TOOL)
    assert all(json.loads(tool.declaration)["function"]["name"] == tool.name for tool in shape.tools)


def test_the_other_pasts_end_with_a_user_and_leave_nothing_open() -> None:
    assert all(past[-1].role is Role.USER for past in PASTS.values())
    assert all(shape in SHAPES and shape.cut is Cut.NONE for shape in REPEATED)
