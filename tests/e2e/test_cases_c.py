"""Public cases C, matching of histories, through the whole server."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


TWO_CALLS = (
    'both\n<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "cat", "arguments": {"p": "b"}}\n</tool_call><|im_end|>'
)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]], ids=["as called", "backwards"])
@pytest.mark.parametrize("copied", [True, False], ids=["text copied", "text once"])
def test_case_c3_one_answer_that_comes_back_in_several_messages_is_that_answer_once(
    wired: Callable[..., Any], wires: Any, order: list[int], copied: bool, tmp_path: Path
) -> None:
    room = wired("qwen3")
    tools = [wires.tool("ls", p="string"), wires.tool("cat", p="string")]
    both_ids, last_ids = room.script(f"<think>\nTwo.\n</think>\n\n{TWO_CALLS}", "done<|im_end|>")
    agent = room.agent()
    first = agent.say("go", tools=tools)
    words = {name: first.message[name] for name in ("content", "reasoning_content")}
    split: list[dict[str, Any]] = []
    for at, number in enumerate(order):
        call = first.message["tool_calls"][number]
        split.append({"role": "assistant", **(words if copied or at == 0 else {}), "tool_calls": [call]})
        split.append(wires.tool_result(call["id"], f"r{number}"))

    second = agent.say("go", *split, tools=tools)

    start = len(first.prompt) + len(both_ids)
    assert (first.text, second.history) == ("both", "spliced")
    assert second.prompt[:start] == first.prompt + both_ids
    new = room.text(second.prompt[start:])
    assert re.findall(r"r\d", new) == [f"r{number}" for number in order]
    assert "both" not in new
    assert agent.summary["notes"] == {"normalised:split_parallel_calls": 1}
    (sequence,) = agent.exported(tmp_path).sequences
    assert wires.sampled(sequence) == [both_ids, last_ids]


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


def test_case_c6_sub_agents_of_one_key_find_their_own_parents_however_their_calls_overlap(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired()
    answers = {"u1": "A1", "x": "X1", "y": "Y1", "t1": "A2", "t2": "X2"}

    def answer(prompt: list[int]) -> list[int]:
        last = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", room.text(prompt))[-1]
        return room.ids(f"{answers[last]}<|im_end|>")

    room.fake.answer = answer
    conversations = [("Main.", ["u1", "t1"]), ("Sub.", ["x", "t2"]), ("Sub.", ["y"])]
    for seed in range(12):
        dice = random.Random(seed)
        agent = room.agent()
        start = threading.Barrier(len(conversations))

        def converse(system: str, turns: list[str], waits: list[float], agent: Any, start: threading.Barrier) -> None:
            start.wait()
            history: list[Any] = [{"role": "system", "content": system}]
            for turn, wait in zip(turns, waits, strict=True):
                threading.Event().wait(wait)
                said = agent.say(*history, turn)
                assert said.status == 200
                history += [wires.user(turn), said.message]

        with ThreadPoolExecutor(3) as pool:
            work = [
                pool.submit(converse, system, turns, [dice.uniform(0, 0.02) for _ in turns], agent, start)
                for system, turns in dice.sample(conversations, 3)
            ]
        for each in work:
            each.result()

        sequences = agent.exported(tmp_path).sequences
        said = sorted([room.text(ids) for ids in wires.sampled(each)] for each in sequences)
        assert said == [[f"{each}<|im_end|>" for each in row] for row in (["A1", "A2"], ["X1", "X2"], ["Y1"])]
        assert agent.summary["history"] == {"root": 3, "spliced": 2}


def test_case_c7_calls_that_come_back_under_one_constant_id_are_four_turns_in_order(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired("qwen3")
    terminal = wires.tool("terminal")
    call = '<tool_call>\n{"name": "terminal", "arguments": {}}\n</tool_call>'
    *calls_ids, twice_ids, last_ids = room.script(
        *[f"{call}<|im_end|>"] * 4, f"{call}\n{call}<|im_end|>", "done<|im_end|>"
    )
    agent = room.agent()
    history: list[Any] = [wires.user("go")]
    handed_out: list[str] = []
    said = agent.say(*history, tools=[terminal])
    for turn in range(5):
        handed_out += [each["id"] for each in said.message["tool_calls"]]
        history.append(said.message | {"tool_calls": [each | {"id": "call_0"} for each in said.message["tool_calls"]]})
        history += [wires.tool_result("call_0", f"r{turn}{at}") for at in range(len(said.message["tool_calls"]))]
        prompt = said.prompt
        said = agent.say(*history, tools=[terminal])
        assert (said.history, said.prompt[: len(prompt)]) == ("spliced", prompt)

    assert len(set(handed_out)) == len(handed_out) == 6
    assert said.text == "done"
    assert re.findall(r"r\d\d", room.text(said.prompt)) == ["r00", "r10", "r20", "r30", "r40", "r41"]
    assert agent.summary["notes"] == {"tool_id_duplicate": 4}
    (sequence,) = agent.exported(tmp_path).sequences
    assert wires.sampled(sequence) == [*calls_ids, twice_ids, last_ids]
