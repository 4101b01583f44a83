"""Public cases H, truncation, compaction and overflow, through the whole server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WINDOW = 4096


@pytest.mark.parametrize("fields", [{"max_tokens": 200}, {}], ids=["with a limit", "without"])
@pytest.mark.parametrize("stream", [False, True])
def test_case_h1_a_prompt_beyond_the_window_is_the_engines_error_with_its_numbers_and_no_row(
    wired: Callable[..., Any], fields: dict[str, int], stream: bool, tmp_path: Path
) -> None:
    room = wired()
    room.script("Hello.<|im_end|>")
    agent = room.agent()

    first = agent.say("Hi", stream=stream)
    refused = agent.say("Hi", first.message, "word " * 5000, stream=stream, **fields)

    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
    assert str(len(refused.prompt)) in refused.error["message"]
    assert str(WINDOW) in refused.error["message"]
    rollout = agent.exported(tmp_path)
    assert agent.summary["failed_calls"] == {"context_overflow": 1}
    assert [(call.finish, call.incomplete_reasons) for call in rollout.calls] == [
        ("stop", ()), ("error", ("context_overflow",)),
    ]  # fmt: skip
    assert len(rollout.sequences) == 1
    room.script("Yes.<|im_end|>")
    assert agent.say("Hi", first.message, "short", stream=stream).history == "spliced"


def test_case_h1_an_answer_that_fills_the_window_ended_by_length_and_is_no_stop(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired()
    words = room.ids("word " * 4000)
    room.script(words)
    agent = room.agent()
    said = agent.say("word " * 100, max_tokens=100_000)
    assert (said.status, said.finish_reason) == (200, "length")
    rollout = agent.exported(tmp_path)
    ((sampled,),) = [wires.sampled(each) for each in rollout.sequences]
    assert len(said.prompt) + len(sampled) == WINDOW
    assert sampled == words[: len(sampled)]
    assert (rollout.calls[0].finish, rollout.calls[0].complete) == ("length", True)


def test_case_h2_a_compacted_history_and_a_return_to_the_one_before_are_rows_of_their_own(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired()
    agent = room.agent(group_id="g")
    texts = [*(f"Answer number {turn}." for turn in range(1, 6)), "We listed files and found one.", "A7", "A8", "A5b"]
    answers = room.script(*(f"{text}<|im_end|>" for text in texts))
    system = {"role": "system", "content": "Be short."}
    history: list[Any] = [system]
    said: list[Any] = []
    for turn in range(1, 6):
        history.append(wires.user(f"question {turn}"))
        said.append(agent.say(*history))
        history.append(said[-1].message)
    summary = agent.say(*history, "Summarise what happened.")
    compacted: list[Any] = [system, wires.user(f"Summary: {summary.text}")]
    seventh = agent.say(*compacted)
    eighth = agent.say(*compacted, seventh.message, "and then?")
    back = agent.say(*history, "Rather not. What else?")
    agent.handle.finish(reward=0.5)

    assert [each.history for each in said] == ["root", *["spliced"] * 4]
    assert [each.history for each in (summary, seventh, eighth, back)] == [
        "spliced", "forked:history_rewritten", "spliced", "forked:rewound",
    ]  # fmt: skip
    kept = len(said[-1].prompt) + len(answers[4])
    assert back.prompt[:kept] == summary.prompt[:kept] == said[-1].prompt + answers[4]
    rollout = agent.exported(tmp_path)
    rows = [wires.sampled(each) for each in rollout.sequences]
    assert rows == [answers[:6], answers[6:8], [answers[8]]]
    assert wires.sampled(rollout.sequences[2], trainable=False) == answers[:5]
    assert rollout.token_counts.trainable == rollout.token_counts.sampled == sum(map(len, answers))
    assert (rollout.reward, rollout.rollout_id) == (0.5, agent.handle.rollout_id)
    assert [each.incomplete_reasons for each in rollout.sequences] == [()] * 3


def test_case_h2_an_old_result_that_was_shortened_is_a_rewritten_history_and_nothing_is_trained_twice(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired("qwen3")
    ls = wires.tool("ls", p="string")
    call = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call><|im_end|>'
    answers = room.script(call, call, "two files<|im_end|>")
    agent = room.agent()
    history: list[Any] = [wires.user("go")]
    first = agent.say(*history, tools=[ls])
    history += [first.message, wires.tool_result(first.message["tool_calls"][0]["id"], "a long listing " * 40)]
    second = agent.say(*history, tools=[ls])
    history += [second.message, wires.tool_result(second.message["tool_calls"][0]["id"], "b")]
    history[2] = history[2] | {"content": "[shortened]"}
    third = agent.say(*history, tools=[ls])

    assert third.history == "forked:message_edited"
    assert third.prompt[: len(first.prompt) + len(answers[0])] == first.prompt + answers[0]
    rollout = agent.exported(tmp_path)
    assert [wires.sampled(each) for each in rollout.sequences] == [answers[:2], [answers[2]]]
    assert wires.sampled(rollout.sequences[1], trainable=False)[0] == answers[0]
    assert rollout.token_counts.trainable == sum(map(len, answers))
    (state,) = [each for each in room.forest(agent).calls.values() if each.started.call_id == third.call_id]
    assert (state.started.history.message_index, state.started.history.now) == (2, "[shortened]")
