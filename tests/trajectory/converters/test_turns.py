"""A sequence as turns with messages."""

from __future__ import annotations

from typing import Any

from turnstile.trajectory.converters.turns import text_of, trained_runs, turns_of
from turnstile.trajectory.shapes import Rollout


def test_a_turn_is_what_stood_before_an_answer_and_the_answer(rollouts: list[Rollout]) -> None:
    rollout = rollouts[0]
    first, second = turns_of(rollout, rollout.sequences[0])
    assert (first.start, first.opening, first.answer, first.end, first.call) == (0, 5, 7, 11, 0)
    assert (second.start, second.opening, second.answer, second.end, second.call) == (11, 17, 19, 22, 1)
    assert (first.context, first.message) == ((rollout.messages[0],), rollout.messages[1])
    assert (second.context, second.message) == ((rollout.messages[2],), rollout.messages[3])


def test_a_replayed_answer_is_context(rollouts: list[Rollout]) -> None:
    rollout = rollouts[1]
    (turn,) = turns_of(rollout, rollout.sequences[1])
    assert [each["content"] for each in turn.context] == ["hey", "ho", "go"]
    assert turn.message is not None
    assert turn.message["content"] == "gone"
    assert trained_runs(turn) == [(15, 16), (17, 19)]


def test_where_answers_cannot_be_told_from_other_assistant_messages_only_the_last_is(
    group: list[dict[str, Any]], samples_of
) -> None:
    one = group[0]
    one["messages"].append({"role": "assistant", "content": "never sampled"})
    one["sequences"][0]["messages"] = [0, 1, 6, 2, 3]
    steps = samples_of("atif", [one])[0]["steps"]
    assert [(step["source"], step["message"]) for step in steps] == [
        ("agent", ""),
        ("user", "2+2?"),
        ("agent", ""),
        ("agent", "never sampled"),
        ("agent", "It is 4."),
    ]
    assert steps[-1]["metrics"]["completion_token_ids"] == [60, 61, 2]


def test_the_text_of_a_message_is_without_its_images() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image", "sha256": "0"}, {"type": "text", "text": "b"}]
    assert text_of({"content": parts}) == "ab"
    assert text_of({"content": None}) == ""
