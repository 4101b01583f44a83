"""Public cases G, chat templates, through the whole server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call><|im_end|>'


def test_case_g1_thinking_that_the_template_would_drop_stays_in_one_sequence(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired("qwen3")
    ls = wires.tool("ls", p="string")
    thought_ids, call_ids, last_ids = room.script(
        "<think>\nR\n</think>\n\nA<|im_end|>", f"<think>\nR2\n</think>\n\n{CALL}", "done<|im_end|>"
    )
    agent = room.agent()

    first = agent.say("q", tools=[ls])
    second = agent.say("q", first.message, "list", tools=[ls])
    result = wires.tool_result(second.message["tool_calls"][0]["id"], "b")
    third = agent.say("q", first.message, "list", second.message, result, tools=[ls])

    assert (second.history, third.history) == ("spliced", "spliced")
    assert second.prompt[: len(first.prompt) + len(thought_ids)] == first.prompt + thought_ids
    assert third.prompt[: len(second.prompt) + len(call_ids)] == second.prompt + call_ids
    rollout = agent.exported(tmp_path)
    (sequence,) = rollout.sequences
    assert wires.sampled(sequence) == [thought_ids, call_ids, last_ids]
    assert rollout.extra["turnstile.retention"] == "retain"


def test_case_g1_where_the_template_has_its_way_a_new_row_begins_and_the_thinking_is_trained_in_the_first(
    wire_up: Callable[..., Any], wires: Any, family: Callable[[str], Path], tmp_path: Path
) -> None:
    ls = wires.tool("ls", p="string")
    with wire_up(family("qwen3"), ("<|im_end|>",), retention="template") as room:
        thought_ids, call_ids, last_ids = room.script(
            "<think>\nR\n</think>\n\nA<|im_end|>", f"<think>\nR2\n</think>\n\n{CALL}", "done<|im_end|>"
        )
        agent = room.agent()
        first = agent.say("q", tools=[ls])
        second = agent.say("q", first.message, "list", tools=[ls])
        result = wires.tool_result(second.message["tool_calls"][0]["id"], "b")
        third = agent.say("q", first.message, "list", second.message, result, tools=[ls])
        rollout = agent.exported(tmp_path)
        begins = room.ids("A<|im_end|>\n")

    assert (second.history, third.history) == ("forked:retention", "spliced")
    # The render of turn 2 has the answer without its thinking, right behind what was held.
    start = len(first.prompt)
    assert second.prompt[: start + len(begins)] == first.prompt + begins
    # Inside the tool cycle the thinking stays.
    assert third.prompt[: len(second.prompt) + len(call_ids)] == second.prompt + call_ids
    rows = rollout.sequences
    assert [wires.sampled(each) for each in rows] == [[thought_ids], [call_ids, last_ids]]
    assert rows[1].token_ids.tolist()[start : start + len(begins)] == begins
    assert not any(rows[1].loss_mask_T()[: len(second.prompt)])
    assert rollout.token_counts.trainable == len(thought_ids) + len(call_ids) + len(last_ids)
    assert [call.history_reason for call in rollout.calls] == [None, "retention:1", None]
    assert rollout.extra["turnstile.retention"] == "template"


@pytest.mark.parametrize(("family_name", "end"), [("qwen3", "<|im_end|>"), ("llama3.1", "<|eot_id|>")])
def test_case_g4_no_tools_are_one_prompt_in_every_spelling_and_no_fork(
    wired: Callable[..., Any], family_name: str, end: str
) -> None:
    room = wired(family_name)
    spellings: list[dict[str, Any]] = [{}, {"tools": None}, {"tools": []}, {"tools": [], "tool_choice": "auto"}]
    agent = room.agent()
    prompts = []
    for first_fields, then_fields in zip(spellings, reversed(spellings), strict=True):
        room.script(f"Hello{end}", f"Yes{end}")
        first = agent.say("Hi", **first_fields)
        second = agent.say("Hi", first.message, "sure?", **then_fields)
        assert (first.status, second.history) == (200, "spliced")
        prompts.append((first.prompt, second.prompt))
    assert prompts == [prompts[0]] * len(spellings)
    assert all("tools" not in request for request in room.fake.requests)
    assert len(room.forest(agent).heads) == 1


def test_case_g4_a_real_list_of_tools_keeps_its_order_and_its_key_order(wired: Callable[..., Any]) -> None:
    room = wired("qwen3")
    tools = [
        {"type": "function", "function": {"parameters": {"type": "object"}, "name": name, "description": "d"}}
        for name in ("zeta", "alpha")
    ]
    room.script("Hello<|im_end|>")
    text = room.text(room.agent().say("Hi", tools=tools).prompt)
    assert text.index('"zeta"') < text.index('"alpha"')
    assert '{"parameters": {"type": "object"}, "name": "zeta", "description": "d"}' in text


@pytest.mark.parametrize(
    ("family_name", "role", "notes"),
    [("qwen3", "system", {}), ("qwen3.5", "user", {"system_in_place:as_user": 2})],
    ids=["in place", "as user"],
)
def test_case_g5_system_messages_in_the_middle_stay_in_place_and_fork_nothing(
    wired: Callable[..., Any], wires: Any, family_name: str, role: str, notes: dict[str, int], tmp_path: Path
) -> None:
    room = wired(family_name)
    ls = wires.tool("ls", p="string")
    call, last = CALL, "done<|im_end|>"
    if family_name == "qwen3.5":
        call = "</think>\n\n<tool_call>\n<function=ls>\n<parameter=p>\n/a\n</parameter>\n</function>\n</tool_call>"
        call, last = f"{call}<|im_end|>", f"</think>\n\n{last}"
    answers = room.script(call, call, last)
    agent = room.agent()
    history: list[Any] = [{"role": "system", "content": "S"}, wires.user("u1")]
    said = [agent.say(*history, tools=[ls])]
    for left in ("9000 tokens left", "8500 tokens left"):
        message = said[-1].message
        result = wires.tool_result(message["tool_calls"][0]["id"], "b")
        history += [message, result, {"role": "system", "content": left}]
        said.append(agent.say(*history, tools=[ls]))

    assert [each.history for each in said] == ["root", "spliced", "spliced"]
    for before, sampled, after in zip(said, answers, said[1:], strict=False):
        assert after.prompt[: len(before.prompt) + len(sampled)] == before.prompt + sampled
    assert f"<|im_start|>{role}\n9000 tokens left<|im_end|>" in room.text(said[1].prompt)
    assert f"<|im_start|>{role}\n8500 tokens left<|im_end|>" in room.text(said[2].prompt)
    assert room.text(said[2].prompt).count("tokens left") == 2
    assert agent.summary["notes"] == notes
    (sequence,) = agent.exported(tmp_path).sequences
    assert wires.sampled(sequence) == answers
