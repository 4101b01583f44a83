"""Public cases D, stops, log-probabilities and masks, through the whole server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("stream", [False, True])
def test_case_d1_what_lies_behind_a_stop_string_is_dropped_from_every_array(
    wired: Callable[..., Any], wires: Any, stream: bool, tmp_path: Path
) -> None:
    room = wired("qwen3")
    ha = room.ids(" ha")
    kept = [64, 293, *ha, *ha]
    _, last_ids = room.script([*kept, room.id_of("x")], "c<|im_end|>")
    agent = room.agent()

    first = agent.say(
        "laugh", stop=[" ha ha"], stream=stream, stream_options={"include_usage": True} if stream else None
    )
    second = agent.say("laugh", first.message, "more", stream=stream)

    # The sampled tokens through the stop string stay; the text ends before it.
    usage = (first.events[-1] if stream else first.json)["usage"]
    assert (first.text, usage["completion_tokens"]) == ("a b", len(kept))
    rollout = agent.exported(tmp_path)
    assert rollout.calls[0].finish == "stop"
    assert agent.summary["notes"]["trimmed_past_stop"] == 1
    (sequence,) = rollout.sequences
    assert wires.sampled(sequence) == [kept, last_ids]
    assert len(sequence.logprobs) == len(kept) + len(last_ids)
    # The close that nobody sampled is scaffold, without a number.
    end_of_first = len(first.prompt) + len(kept)
    assert second.prompt[end_of_first] == room.id_of("<|im_end|>")
    (closing,) = [part for part in sequence.segments if part.start == end_of_first]
    assert (closing.kind, closing.trainable) == ("scaffold", False)


def test_case_d2_each_call_says_what_its_log_probabilities_are_and_nothing_is_calculated_from_them(
    wired: Callable[..., Any], tmp_path: Path
) -> None:
    room = wired()
    answer = room.ids("Hello.<|im_end|>")
    settings: list[dict[str, Any]] = [{}, {"temperature": 0.7}, {"temperature": 0.7, "top_p": 0.9}]
    agent = room.agent()
    for each in settings:
        room.script(answer)
        assert agent.say(f"hi {each}", **each).status == 200

    rollout = agent.exported(tmp_path)
    said = [rollout.samplings[call.sampling] for call in rollout.calls]
    assert [(each.temperature, each.top_p) for each in said] == [(1.0, 1.0), (0.7, 1.0), (0.7, 0.9)]
    assert [(call.logprobs_mode, call.logprobs_temperature) for call in rollout.calls] == [
        ("processed", 1.0), ("processed", pytest.approx(0.7)), ("processed", pytest.approx(0.7)),
    ]  # fmt: skip
    for sequence, temperature in zip(rollout.sequences[:2], (1.0, 0.7), strict=True):
        known = [room.fake.logprob(each, temperature) for each in answer]
        assert sequence.logprobs.tolist()[-len(answer) :] == pytest.approx(known, abs=1e-5)


@pytest.mark.parametrize(
    ("length", "temperature", "suspected"),
    [(24, 1.0, {"logprob_suspect:all_zero": 1}), (3, 1.0, {}), (24, 0.0, {})],
    ids=["24 at temperature 1", "3 are legal", "greedy"],
)
def test_case_d3_log_probabilities_that_are_all_zero_are_marked_and_counted(
    wired: Callable[..., Any], fakes: Any, length: int, temperature: float, suspected: dict[str, int], tmp_path: Path
) -> None:
    room = wired()
    room.script([*room.ids("word") * (length - 1), room.id_of("<|im_end|>")])
    room.fake.faults.extend([fakes.Fault.CERTAIN] * length)
    agent = room.agent()
    assert agent.say("go", temperature=temperature).status == 200
    room.fake.faults.clear()

    assert agent.summary["notes"] == suspected
    rollout = agent.exported(tmp_path)
    assert rollout.sequences[0].logprobs.tolist() == [0.0] * length
    assert rollout.token_counts.trainable == length


@pytest.mark.parametrize(("policy", "trained", "masked"), [("mark", 24, {}), ("mask", 0, {"logprob_suspect": 24})])
def test_case_d3_suspect_log_probabilities_are_marked_or_masked_as_the_server_was_told(
    wire_up: Callable[..., Any], fakes: Any, tools_folder: Path, policy: str, trained: int, masked: Any, tmp_path: Path
) -> None:
    with wire_up(tools_folder, ("<|im_end|>",), suspect_logprobs=policy) as room:
        room.script([*room.ids("word") * 23, room.id_of("<|im_end|>")])
        room.fake.faults.extend([fakes.Fault.CERTAIN] * 24)
        agent = room.agent()
        assert agent.say("go", temperature=1.0).status == 200
        room.fake.faults.clear()
        notes = agent.summary["notes"]
        rollout = agent.exported(tmp_path)

    assert notes == {"logprob_suspect:all_zero": 1}
    assert rollout.sequences[0].logprobs.tolist() == [0.0] * 24
    assert (rollout.token_counts.trainable, rollout.token_counts.masked) == (trained, masked)
    assert sum(rollout.sequences[0].loss_mask_T()) == trained


@pytest.mark.parametrize("ended", ["by length", "by a stop token"])
def test_case_d4_a_close_that_nobody_sampled_is_scaffold_without_a_log_probability(
    wired: Callable[..., Any], wires: Any, ended: str, tmp_path: Path
) -> None:
    room = wired("qwen3")
    end, newline = room.id_of("<|im_end|>"), 198
    abc = room.ids("a b c")
    answer_ids = abc if ended == "by length" else [*abc, end]
    _, last_ids = room.script(answer_ids, "d<|im_end|>")
    agent = room.agent()

    first = agent.say("go", max_tokens=len(answer_ids))
    second = agent.say("go", first.message, "more")

    start = len(first.prompt)
    assert first.finish_reason == ("length" if ended == "by length" else "stop")
    assert second.prompt[start : start + 5] == [*abc, end, newline]
    assert second.prompt[start:].count(end) == 2
    rollout = agent.exported(tmp_path)
    assert rollout.calls[0].finish == first.finish_reason
    (sequence,) = rollout.sequences
    assert wires.sampled(sequence) == [answer_ids, last_ids]
    assert len(sequence.logprobs) == len(answer_ids) + len(last_ids)
    (behind,) = [part for part in sequence.segments if part.start == start + len(answer_ids)]
    assert (behind.kind, behind.trainable) == ("scaffold", False)


def test_case_d4_an_answer_without_ids_is_no_turn_and_leaves_no_close_behind(
    wired: Callable[..., Any], wires: Any, fakes: Any, tmp_path: Path
) -> None:
    room = wired("qwen3")
    _, good_ids = room.script("lost<|im_end|>", "Hello<|im_end|>")
    room.fake.faults.append(fakes.Fault.NO_TOKENS)
    agent = room.agent()

    nothing = agent.say("hi")
    again = agent.say("hi")

    assert (nothing.status, nothing.error["code"]) == (502, "engine_broken")
    assert again.prompt == nothing.prompt
    assert room.text(again.prompt).endswith("hi<|im_end|>\n<|im_start|>assistant\n")
    (sequence,) = agent.exported(tmp_path).sequences
    assert wires.sampled(sequence) == [good_ids]
