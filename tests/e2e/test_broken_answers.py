"""Public cases E2, F5 and F6 in every dialect: answers that break off, and what clients make of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.protocols import DIALECTS

DIALECT = pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
THOUGHT = "<think>\nI look.\n</think>\n\n"
TEXT = "Looking."
CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>'
LONG_CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "' + "/long" * 80 + '"}}\n</tool_call>'


@pytest.fixture
def talk(wired: Callable[..., Any], speaking: Any) -> Callable[[str], Any]:
    room = wired("qwen3")
    return lambda dialect: speaking.Talker(room, speaking.SPEAKERS[dialect], room.agent())


def end_of(room: Any, ids: list[int], marker: str) -> int:
    """How many ids end with the first of a marker."""
    return ids.index(room.id_of(marker)) + 1


@DIALECT
def test_case_f6_the_finished_part_of_an_aborted_answer_is_gone_on_from_with_its_own_ids(
    talk: Callable[[str], Any], dialect: str, fakes: Any, speaking: Any, wires: Any, tmp_path: Path
) -> None:
    it = talk(dialect)
    room = it.room
    ids = room.ids(f"{THOUGHT}{TEXT}\n{CALL}\n{LONG_CALL}<|im_end|>")
    end = end_of(room, ids, "</tool_call>")
    speaking.broken_behind(room, fakes, ids, end)
    first = it.say("go")
    kept = it.heard(first)
    second_ids, third_ids = room.script("Found b.<|im_end|>", "Done.<|im_end|>")
    second = it.say("go", kept, speaking.Result(kept.calls[0], "b"))
    third = it.say("go", kept, speaking.Result(kept.calls[0], "b"), it.heard(second), "more")

    assert it.broke_off(first)
    assert (kept.text.strip(), [call.arguments for call in kept.calls]) == (TEXT, [{"p": "/a"}])
    assert (second.history, third.history) == ("spliced", "spliced")
    assert second.prompt[: len(first.prompt) + end] == first.prompt + ids[:end]
    assert third.prompt[: len(second.prompt) + len(second_ids)] == second.prompt + second_ids
    broken, resumed, _ = it.calls
    assert [note.detail for note in resumed.started.notes if note.code.value == "continued_from_aborted"] == [
        f"{end} of {len(broken.failed.partial_S)} ids"
    ]
    rollout = it.agent.exported(tmp_path)
    (sequence,) = rollout.sequences
    assert wires.sampled(sequence) == [ids[:end], second_ids, third_ids]
    counts = rollout.token_counts
    assert counts.discarded == {"aborted_tail": len(broken.failed.partial_S) - end}
    assert rollout.calls[0].finish == "abort"
    numbers = [room.fake.logprob(token) for token in (*ids[:end], *second_ids, *third_ids)]
    assert sequence.logprobs.tolist() == pytest.approx(numbers, abs=1e-4)


@DIALECT
def test_case_f6_the_same_body_without_the_items_is_a_plain_retry(
    talk: Callable[[str], Any], dialect: str, fakes: Any, speaking: Any, wires: Any, tmp_path: Path
) -> None:
    it = talk(dialect)
    room = it.room
    ids = room.ids(f"{THOUGHT}{TEXT}\n{CALL}\n{LONG_CALL}<|im_end|>")
    speaking.broken_behind(room, fakes, ids, end_of(room, ids, "</tool_call>"))
    first = it.say("go")
    (again_ids,) = room.script("A<|im_end|>")
    again = it.say("go")

    assert (again.prompt, again.history, it.heard(again).text) == (first.prompt, "root", "A")
    assert it.calls[1].started.notes == ()
    rollout = it.agent.exported(tmp_path)
    assert [wires.sampled(sequence) for sequence in rollout.sequences] == [[again_ids]]
    assert rollout.token_counts.discarded == {"engine_unreachable": len(it.calls[0].failed.partial_S)}
