"""Public cases C, matching of histories, through the whole server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def test_case_c1_null_empty_and_absent_content_are_one_and_the_same(wired: Callable[..., Any], wires: Any) -> None:
    room = wired("qwen3")
    ls = wires.tool("ls", p="string")
    answer_ids, *_ = room.script(
        '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call><|im_end|>', *(["b<|im_end|>"] * 5)
    )
    agent = room.agent()
    first = agent.say("go", tools=[ls])
    (call,) = first.message["tool_calls"]
    spellings: list[dict[str, Any]] = [
        {"content": None}, {"content": ""}, {}, {"content": []}, {"content": [{"type": "text", "text": ""}]},
    ]  # fmt: skip

    seconds = [
        agent.say(
            "go", {"role": "assistant", "tool_calls": [call], **each}, wires.tool_result(call["id"], "b"), tools=[ls]
        )
        for each in spellings
    ]

    assert [each.history for each in seconds] == ["spliced"] * 5
    assert [each.prompt for each in seconds] == [seconds[0].prompt] * 5
    assert seconds[0].prompt[: len(first.prompt) + len(answer_ids)] == first.prompt + answer_ids
    assert "None" not in room.text(seconds[0].prompt)
    assert agent.summary["history"] == {"root": 1, "spliced": 5}


def test_case_c1_an_empty_list_of_calls_is_no_edit_of_a_text(wired: Callable[..., Any]) -> None:
    room = wired("qwen3")
    room.script("Hello<|im_end|>", "Yes<|im_end|>", "Yes<|im_end|>")
    agent = room.agent()
    first = agent.say("Hi")
    plain = agent.say("Hi", {"role": "assistant", "content": "Hello"}, "sure?")
    listed = agent.say("Hi", {"role": "assistant", "content": "Hello", "tool_calls": []}, "sure?")
    assert first.text == "Hello"
    assert (plain.history, listed.history) == ("spliced", "spliced")
    assert plain.prompt == listed.prompt


@pytest.mark.parametrize(
    ("sent", "history"),
    [
        ({"reasoning_content": "R", "content": "A"}, "spliced"),
        ({"reasoning": "R", "content": "A"}, "spliced"),
        ({"content": "A"}, "spliced"),
        ({"reasoning_content": "", "content": "A"}, "spliced"),
        ({"content": "<think>R</think>A"}, "spliced"),
        ({"reasoning": "R changed", "content": "A"}, "forked:assistant_edited"),
    ],
    ids=["same name", "other name", "absent", "empty", "inside the content", "changed"],
)
def test_case_c2_reasoning_is_kept_whatever_the_client_does_with_it_and_a_change_forks(
    wired: Callable[..., Any], sent: dict[str, Any], history: str
) -> None:
    room = wired("qwen3")
    answer_ids, _ = room.script("<think>\nR\n</think>\n\nA<|im_end|>", "B<|im_end|>")
    agent = room.agent()
    first = agent.say("q")
    second = agent.say("q", {"role": "assistant", **sent}, "more")
    assert (first.message["reasoning_content"].strip(), first.text) == ("R", "A")
    assert second.history == history
    assert (second.prompt[: len(first.prompt) + len(answer_ids)] == first.prompt + answer_ids) is (history == "spliced")
    assert second.prompt.count(room.id_of("<think>")) <= 1


def test_case_c4_an_omitted_turn_is_a_branch_of_its_own_and_nothing_is_trained_twice(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired()
    a_ids, b_ids, c_ids = room.script("Aaa<|im_end|>", "Bbb<|im_end|>", "Ccc<|im_end|>")
    system = {"role": "system", "content": "Be short."}
    agent = room.agent()

    agent.say(system, "u")
    second = agent.say(system, "u", "use the format")
    third = agent.say(system, "u", "use the format", {"role": "assistant", "content": "Bbb"}, "u3")
    agent.handle.finish(reward=0.5)

    assert (second.history, third.history) == ("forked:assistant_turn_omitted", "spliced")
    rollout = agent.exported(tmp_path)
    left, went_on = rollout.sequences
    assert wires.sampled(left) == [a_ids]
    assert wires.sampled(went_on) == [b_ids, c_ids]
    assert went_on.token_ids.tolist() == third.prompt + c_ids
    assert (left.messages, went_on.messages[:2]) == ((*went_on.messages[:2], left.messages[-1]), left.messages[:2])
    assert (rollout.reward, left.reward, went_on.reward) == (0.5, None, None)
    assert [(call.history, call.history_reason) for call in rollout.calls] == [
        ("root", None), ("forked", "assistant_turn_omitted:2"), ("spliced", None),
    ]  # fmt: skip
    assert rollout.token_counts.trainable == rollout.token_counts.sampled == len(a_ids + b_ids + c_ids)


@pytest.mark.parametrize(
    ("first_text", "then_text", "offset"),
    [
        ("[09:00] do X", "do X", 0),
        ("<system-reminder>x</system-reminder>", "<system-reminder>x</system-reminder>\n", 36),
    ],
    ids=["a timestamp goes", "a newline comes"],
)
def test_case_c5_a_changed_user_text_is_an_honest_fork_that_says_where(
    wired: Callable[..., Any], wires: Any, first_text: str, then_text: str, offset: int, tmp_path: Path
) -> None:
    room = wired()
    a_ids, b_ids = room.script("Done<|im_end|>", "Again<|im_end|>")
    agent = room.agent()

    first = agent.say(first_text)
    second = agent.say(then_text, first.message, "and Y")

    assert second.history == "forked:message_edited"
    assert then_text in room.text(second.prompt)
    rollout = agent.exported(tmp_path)
    (before, after) = rollout.sequences
    assert wires.sampled(before) == [a_ids]
    assert wires.sampled(after) == [b_ids]
    assert rollout.token_counts.trainable == len(a_ids) + len(b_ids)
    assert agent.summary["history"] == {"root": 1, "forked:message_edited": 1}
    (forked,) = [state for state in room.forest(agent).calls.values() if state.started.call_id == second.call_id]
    where = forked.started.history
    assert (where.message_index, where.char_offset) == (0, offset)
    assert where.was != where.now
