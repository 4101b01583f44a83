"""Public cases C as only chat completions have them, through the whole server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


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


def test_case_c2_the_policy_strip_gives_stripped_prompts_and_each_row_says_so(
    wire_up: Callable[..., Any], wires: Any, family: Callable[[str], Path], tmp_path: Path
) -> None:
    spellings: list[dict[str, Any]] = [{"reasoning_content": "R"}, {"reasoning": "R"}, {}, {"reasoning_content": ""}]
    with wire_up(family("qwen3"), ("<|im_end|>",), retention="template") as room:
        prompts: list[list[int]] = []
        for spelling in spellings:
            thought, last = room.script("<think>\nR\n</think>\n\nA<|im_end|>", "B<|im_end|>")
            agent = room.agent()
            first = agent.say("q")
            second = agent.say("q", {"role": "assistant", "content": "A", **spelling}, "more")
            prompts.append(second.prompt)
            rollout = agent.exported(tmp_path)

            assert second.history == "forked:retention"
            assert room.text(second.prompt[len(first.prompt) :]).startswith("A<|im_end|>")
            assert room.id_of("<think>") not in second.prompt
            assert [wires.sampled(each) for each in rollout.sequences] == [[thought], [last]]
            assert wires.sampled(rollout.sequences[1], trainable=False) == []
            assert rollout.extra["turnstile.retention"] == "template"
            reasons = [rollout.calls[each.leaf_call].history_reason for each in rollout.sequences]
            assert reasons == [None, "retention:1"]
        assert prompts == [prompts[0]] * len(spellings)


def test_case_c5_each_turn_of_a_decorated_message_is_a_fork_and_the_newest_sequence_trains_only_its_own(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired()
    answers = room.script("One.<|im_end|>", "Two.<|im_end|>", "Three.<|im_end|>")
    agent = room.agent()
    plain: list[Any] = []
    for turn in range(3):
        said = agent.say(*plain, f"[09:0{turn}] do {turn}")
        plain += [wires.user(f"do {turn}"), said.message]

    assert agent.summary["history"] == {"root": 1, "forked:message_edited": 2}
    rollout = agent.exported(tmp_path)
    assert [wires.sampled(each) for each in rollout.sequences] == [[ids] for ids in answers]
    assert [(call.history_reason or "") for call in rollout.calls] == ["", "message_edited:0", "message_edited:2"]
    changes = [rollout.extra["turnstile.calls"][call.call_id].get("change") for call in rollout.calls]
    assert [(change["was"], change["now"]) for change in changes[1:]] == [
        ("[09:00] do 0", "do 0"), ("[09:01] do 1", "do 1"),
    ]  # fmt: skip
