"""Prompts as JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from turnstile.engines.prompt_json import PromptJson, ids_json
from turnstile.tokens import IdRun

PROMPTS = st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.lists(st.integers(0, 9), min_size=1, max_size=6)))


@given(PROMPTS, st.integers(0, 200))
def test_whatever_was_asked_before_the_json_is_the_prompts_own(
    prompts: list[tuple[str, list[int]]], kept_bytes: int
) -> None:
    writer = PromptJson(kept_bytes)
    grown: dict[str, list[int]] = {}
    for affinity, ids in prompts:
        for prompt in (ids, [*grown.get(affinity, []), *ids]):
            assert json.loads(b"[" + writer.of(affinity, IdRun.of(prompt)) + b"]") == prompt
            grown[affinity] = prompt


def test_a_longer_prompt_of_the_same_conversation_is_written_from_where_the_last_one_ended() -> None:
    writer = PromptJson()
    first = writer.of("r", IdRun.of([1, 2]))
    assert (first, writer.of("r", IdRun.of([1, 2, 3])), writer.of("r", IdRun.of([1, 2, 3]))) == (
        b"1,2",
        b"1,2,3",
        b"1,2,3",
    )


def test_a_conversation_that_has_been_quiet_for_ten_minutes_is_forgotten() -> None:
    now = iter([0.0, 1.0, 600.5, 601.5])
    writer = PromptJson(clock=lambda: next(now))
    remembered = []
    for affinity in ("over", "slow", "slow", "new"):
        writer.of(affinity, IdRun.of([1]))
        remembered.append(writer.remembered)
    assert remembered == [("over",), ("over", "slow"), ("slow",), ("slow", "new")]


def test_the_longest_quiet_conversation_goes_where_bytes_run_out() -> None:
    writer = PromptJson(kept_bytes=2 * (4 + 1))
    for affinity in ("a", "b", "a", "c"):
        writer.of(affinity, IdRun.of([1]))
    assert writer.remembered == ("a", "c")


def test_ids_are_written_without_blanks() -> None:
    assert ids_json([5, 60, 700]) == b"5,60,700"
