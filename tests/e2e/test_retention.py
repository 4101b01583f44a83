"""Six turns of thinking on Qwen3 under each retention policy, from HTTP to the exported trajectory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnstile.generation import Retention

CALL = '<tool_call>\n{"name": "ls", "arguments": {"path": "/"}}\n</tool_call><|im_end|>'
"""As the template itself writes a call."""
ANSWERS = [
    "<think>\nT1\n</think>\n\nA1<|im_end|>",
    f"<think>\nT2\n</think>\n\n{CALL.replace(': ', ':')}",
    "<think>\nT3\n</think>\n\nA3<|im_end|>",
    f"<think>\nT4\n</think>\n\n{CALL}",
    "<think>\nT5\n</think>\n\nA5<|im_end|>",
    "<think>\nT6\n</think>\n\nA6<|im_end|>",
]
STOPS = ("<|im_end|>", "<|endoftext|>")


@pytest.fixture(scope="module", params=list(Retention))
def played(
    request: pytest.FixtureRequest,
    wire_up: Callable[..., Any],
    wires: Any,
    family: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """Policy, room, what was said, the ids of each answer and the exported trajectory."""
    ls = wires.tool("ls", path="string")
    with wire_up(family("qwen3"), STOPS, retention=request.param.value) as room:
        ids = room.script(*ANSWERS)
        agent = room.agent()
        talk: list[Any] = ["q1"]
        said: list[Any] = []
        for at in range(len(ANSWERS)):
            said.append(agent.say(*talk, tools=[ls]))
            message = said[-1].message
            calls = message.get("tool_calls")
            talk += [message, wires.tool_result(calls[0]["id"], "a.txt") if calls else f"q{at + 2}"]
        health = httpx.get(f"{room.client.url}/healthz", trust_env=False).json()
        yield request.param, room, said, ids, agent.exported(tmp_path_factory.mktemp("retention")), health


HISTORIES = {
    Retention.RETAIN: ["root", *["spliced"] * 5],
    Retention.TOOL_CYCLE: ["root", "forked:retention", "spliced", "forked:retention", "spliced", "forked:retention"],
    Retention.TEMPLATE: ["root", *["forked:retention"] * 3, "spliced", "forked:retention"],
}
"""The second answer writes its call without blanks, which the template does not."""
FORKED_AT = {
    Retention.RETAIN: [],
    Retention.TOOL_CYCLE: [(1, 1), (3, 3), (5, 7)],
    Retention.TEMPLATE: [(1, 1), (2, 3), (3, 3), (5, 7)],
}
"""Call and message at which it forks."""


def test_thinking_stays_or_forks_exactly_where_the_policy_says(played: Any) -> None:
    policy, _, said, _, _, _ = played
    assert [each.history for each in said] == HISTORIES[policy]


def test_all_thinking_is_held_by_default_and_none_of_earlier_turns_otherwise(played: Any) -> None:
    policy, room, said, _, _, _ = played
    last = room.text(said[-1].prompt)
    thoughts = [f"T{at}" for at in range(1, 6) if f"T{at}" in last]
    assert thoughts == (["T1", "T2", "T3", "T4", "T5"] if policy is Retention.RETAIN else [])


def test_inside_a_tool_cycle_thinking_stays_under_every_policy(played: Any) -> None:
    _, room, said, _, _, _ = played
    assert "T4" in room.text(said[4].prompt)


def test_every_sampled_token_is_trained_once(played: Any, wires: Any) -> None:
    policy, _, _, ids, rollout, _ = played
    trained = [run for sequence in rollout.sequences for run in wires.sampled(sequence)]
    assert sorted(trained) == sorted(ids)
    assert rollout.token_counts.trainable == rollout.token_counts.sampled == sum(map(len, ids))
    assert len(rollout.sequences) == 1 + len(FORKED_AT[policy])


def test_the_trajectory_says_under_which_policy_it_was_sampled(played: Any) -> None:
    policy, _, _, _, rollout, _ = played
    assert rollout.extra["turnstile.retention"] == policy.value


def test_a_fork_names_the_answer_and_both_sides(played: Any) -> None:
    policy, _, said, _, rollout, _ = played
    changes = {call: facts["change"] for call, facts in rollout.extra["turnstile.calls"].items() if "change" in facts}
    forks = [(said[call].call_id, message) for call, message in FORKED_AT[policy]]
    assert [(call, change["message_index"]) for call, change in changes.items()] == forks
    if forks:
        first = changes[said[1].call_id]
        assert (first["was"], first["now"][:12]) == ("<think>\nT1\n</think>\n\nA1<|im_end|>", "A1<|im_end|>")


def test_what_was_not_certified_was_proven_in_use_and_counted(played: Any) -> None:
    _, _, _, _, _, health = played
    patterns = health["patterns"]
    assert patterns["certified"] > 8
    assert set(patterns) == {"certified", "exact"}


def test_an_answer_cut_in_its_middle_is_trained_whole_in_one_sequence_and_context_in_the_other(
    wire_up: Callable[..., Any], wires: Any, family: Callable[[str], Path], tmp_path: Path
) -> None:
    ls = wires.tool("ls", path="string")
    with wire_up(family("qwen3"), STOPS, retention=Retention.TEMPLATE.value) as room:
        newline = room.ids("\n")
        before, behind = room.ids("<think>\nT1\n</think>\n\na"), room.ids(f"b\n{CALL}")
        sampled, last = room.script([*before, *newline, *newline, *behind], "A2<|im_end|>")
        agent = room.agent()
        first = agent.say("q1", tools=[ls])
        result = wires.tool_result(first.message["tool_calls"][0]["id"], "a.txt")
        second = agent.say("q1", first.message, result, tools=[ls])
        rollout = agent.exported(tmp_path)
    assert second.history == "forked:retention"
    assert [wires.sampled(each) for each in rollout.sequences] == [[sampled], [last]]
    assert [wires.sampled(each, trainable=False) for each in rollout.sequences] == [[], [before]]
    assert second.prompt[: len(first.prompt) + len(before)] == first.prompt + before
    assert rollout.token_counts.trainable == rollout.token_counts.sampled == len(sampled) + len(last)
