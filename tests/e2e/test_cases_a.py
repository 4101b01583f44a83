"""Public cases A, the channel of token ids, through the whole server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ADD_CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 15, "b": 27}}\n</tool_call><|im_end|>'


def test_case_a1_ids_of_a_streamed_tool_call_do_not_pass_through_a_parser(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired("qwen3")
    call_ids, last_ids = room.script(ADD_CALL, "42<|im_end|>")
    add = wires.tool("add", a="integer", b="integer")
    agent = room.agent()

    first = agent.say("15+27?", tools=[add], stream=True, stream_options={"include_usage": True})
    (call,) = first.message["tool_calls"]
    second = agent.say("15+27?", first.message, wires.tool_result(call["id"], "42"), tools=[add], stream=True)

    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("add", {"a": 15, "b": 27})
    assert first.events[-1]["usage"]["completion_tokens"] == len(call_ids)
    assert second.history == "spliced"
    assert second.prompt[: len(first.prompt) + len(call_ids)] == first.prompt + call_ids
    (sequence,) = agent.exported(tmp_path).sequences
    assert wires.sampled(sequence) == [call_ids, last_ids]


@pytest.mark.parametrize("fault", ["WRONG_COUNT", "TOO_MANY_TOKENS", "NO_TOKENS"])
def test_case_a1_a_count_that_contradicts_the_ids_is_an_error_and_nothing_is_filled_in(
    wired: Callable[..., Any], fakes: Any, fault: str, tmp_path: Path
) -> None:
    room = wired("qwen3")
    agent = room.agent()
    _, good_ids = room.script(ADD_CALL, "42<|im_end|>")
    room.fake.faults.append(fakes.Fault[fault])

    broken = agent.say("15+27?", stream=True)
    again = agent.say("15+27?", stream=True)

    assert (broken.status, broken.error["code"]) == (502, "engine_broken")
    assert (again.history, again.text) == ("root", "42")
    rollout = agent.exported(tmp_path)
    assert [(call.finish, call.usage.completion_tokens) for call in rollout.calls] == [
        ("error", 0),
        ("stop", len(good_ids)),
    ]
    assert rollout.token_counts.sampled == len(good_ids)


def test_case_a2_there_is_one_bos_at_the_start_and_the_record_has_it(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired("llama3.1")
    room.script("Hello.<|eot_id|>", "Yes.<|eot_id|>")
    agent = room.agent()

    first = agent.say("Hi")
    second = agent.say("Hi", first.message, "Sure?")

    assert (first.prompt[0], first.prompt.count(128000)) == (128000, 1)
    assert (second.prompt[0], second.prompt.count(128000)) == (128000, 1)
    (sequence,) = agent.exported(tmp_path).sequences
    assert sequence.token_ids.tolist() == second.prompt + wires.sampled(sequence)[-1]
    assert "add_special" not in room.fake.requests[-1]


@pytest.mark.parametrize("stream", [False, True])
def test_case_a3_another_prompt_than_was_sent_is_no_turn_and_nothing_is_joined_to_it(
    wired: Callable[..., Any], wires: Any, fakes: Any, stream: bool, tmp_path: Path
) -> None:
    room = wired("qwen3")
    first_ids, _, last_ids = room.script("One.<|im_end|>", "lost<|im_end|>", "Two.<|im_end|>")
    agent = room.agent()

    first = agent.say("Hi", stream=stream)
    room.fake.faults.append(fakes.Fault.WRONG_PROMPT_LENGTH)
    broken = agent.say("Hi", first.message, "more", stream=stream)
    again = agent.say("Hi", first.message, "more", stream=stream)

    assert (broken.status, broken.error["code"]) == (502, "echo_mismatch")
    assert agent.summary["failed_calls"] == {"echo_mismatch": 1}
    assert (again.history, again.prompt) == ("spliced", broken.prompt)
    rollout = agent.exported(tmp_path)
    assert [call.finish for call in rollout.calls] == ["stop", "error", "stop"]
    assert rollout.calls[1].incomplete_reasons == ("echo_mismatch",)
    (sequence,) = rollout.sequences
    assert wires.sampled(sequence) == [first_ids, last_ids]


@pytest.mark.parametrize("stream", [False, True])
def test_case_a4_a_sampled_special_token_that_the_text_does_not_show_stays_in_its_place(
    wired: Callable[..., Any], wires: Any, stream: bool, tmp_path: Path
) -> None:
    room = wired("qwen3")
    hello = [9707, 151646, 1879, 151645]
    room.script(hello, "Bye<|im_end|>")
    agent = room.agent()

    first = agent.say("hi", stream=stream)
    second = agent.say("hi", {"role": "assistant", "content": "Hello world"}, "and?", stream=stream)

    assert first.text == "Hello world"
    assert second.history == "spliced"
    assert second.prompt == [
        *first.prompt,
        *hello,
        *room.ids("\n<|im_start|>user\nand?<|im_end|>\n"),
        *room.ids("<|im_start|>assistant\n"),
    ]
    (sequence,) = agent.exported(tmp_path).sequences
    assert wires.sampled(sequence)[0] == hello
    assert sequence.logprobs.tolist()[:4] == pytest.approx([room.fake.logprob(each) for each in hello], abs=1e-5)
