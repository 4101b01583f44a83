"""Public case D1, tokens beyond a stop string, through the whole server."""

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
