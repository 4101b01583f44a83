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
    # What the case calls `context_overflow prompt=.. max=.. window=..`.
    failed = rollout.extra["turnstile.calls"][rollout.calls[1].call_id]["failure"]
    assert failed["problem"] == (f"The prompt has {len(refused.prompt)} tokens and the engine's context holds {WINDOW}")
    assert rollout.samplings[rollout.calls[1].sampling].max_tokens == fields.get("max_tokens")
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


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("overflow", ["as_engine", "clamp"])
def test_case_h1_a_clamped_max_tokens_is_the_room_that_is_left_and_is_recorded(
    wire_up: Callable[..., Any], wires: Any, tools_folder: Path, overflow: str, stream: bool, tmp_path: Path
) -> None:
    with wire_up(tools_folder, ("<|im_end|>",), overflow=overflow) as room:
        room.script("Short.<|im_end|>", words := room.ids("word " * 300))
        agent = room.agent()
        fits = agent.say("Hi", max_tokens=200, stream=stream)
        said = agent.say("word " * (WINDOW - 200), max_tokens=400, stream=stream)
        asked = [request["n_predict"] for request in room.fake.requests]
        rollout = agent.exported(tmp_path)
        notes = agent.summary["notes"]

    left = WINDOW - len(said.prompt)
    assert 0 < left < 400
    assert (fits.finish_reason, said.status, said.finish_reason) == ("stop", 200, "length")
    sampled = wires.sampled(rollout.sequences[-1])[0]
    assert sampled == words[:left]
    assert (rollout.calls[1].finish, rollout.calls[1].complete) == ("length", True)
    sent = [rollout.samplings[call.sampling].max_tokens for call in rollout.calls]
    told = rollout.extra["turnstile.calls"].get(rollout.calls[1].call_id, {}).get("notes", [])
    clamped = [each["detail"] for each in told if each["code"] == "max_tokens_clamped"]
    if overflow == "clamp":
        assert sent == [200, left]
        assert clamped == [f"prompt={len(said.prompt)} max=400 sent={left}"]
        assert notes["max_tokens_clamped"] == 1
        assert max(asked) <= left
    else:
        assert (sent, clamped) == ([200, 400], [])


@pytest.mark.parametrize("stream", [False, True])
def test_case_h1_a_prompt_that_is_too_long_by_itself_is_the_engines_error_also_where_max_tokens_is_clamped(
    wire_up: Callable[..., Any], tools_folder: Path, stream: bool, tmp_path: Path
) -> None:
    with wire_up(tools_folder, ("<|im_end|>",), overflow="clamp") as room:
        agent = room.agent()
        refused = agent.say("word " * 5000, max_tokens=200, stream=stream)
        rollout = agent.exported(tmp_path)
        summary = agent.summary

    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
    assert str(len(refused.prompt)) in refused.error["message"]
    assert (summary["failed_calls"], summary["notes"]) == ({"context_overflow": 1}, {})
    assert [(call.finish, rollout.samplings[call.sampling].max_tokens) for call in rollout.calls] == [("error", 200)]
    assert rollout.sequences == ()


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
