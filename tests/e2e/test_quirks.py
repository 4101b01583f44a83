"""Harnesses' habits through the whole server: public cases J1 and J3, C6 by header, and what can be switched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

VERSION = {"anthropic-version": "2023-06-01"}
TITLE_SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call><|im_end|>'


def billing(hashed: str) -> str:
    return f"x-anthropic-billing-header: cc_version=2.1; cch={hashed};"


def in_blocks(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def in_one(*texts: str) -> str:
    return "\n".join(texts)


class Speaker:
    """An Anthropic client of one rollout."""

    def __init__(self, room: Any) -> None:
        self.room = room
        self.agent = room.agent()
        self.prompts: list[list[int]] = []

    def ask(self, *messages: Any, path: str = "", headers: dict[str, str] | None = None, **fields: Any) -> Any:
        sent = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
        heard = self.room.fake.requests
        before = len(heard)
        answer = self.room.http.post(
            f"{self.agent.handle.anthropic_base_url}/v1/messages{path}",
            json={"model": "m", "max_tokens": 50, "messages": sent, **fields},
            headers={**VERSION, "x-api-key": self.agent.handle.agent_key, **(headers or {})},
        )
        assert answer.status_code == 200, answer.text
        self.prompts += [request["prompt"] for request in heard[before : before + 1]]
        return answer


def said(answer: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": answer.json()["content"]}


@pytest.fixture(scope="module")
def without_quirks(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    with wire_up(tools_folder, ["<|im_end|>"], no_quirks=("billing_line", "claude_code_quota")) as room:
        yield room


@pytest.fixture(scope="module")
def with_own_quirks(
    wire_up: Callable[..., Any], tools_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    file = tmp_path_factory.mktemp("quirks") / "own.json"
    clock = {"type": "remove_system_line", "starts_with": "Now:", "place": "any_line"}
    judge = {"type": "mark_auxiliary", "purpose": "judge"}
    entries = [
        {"name": "clock", "action": clock},
        {"name": "judge", "when": {"system_has": ["you judge"]}, "action": judge},
    ]
    file.write_text(json.dumps({"version": 1, "quirks": entries}), encoding="utf-8")
    with wire_up(tools_folder, ["<|im_end|>"], quirks=file) as room:
        yield room


@pytest.mark.parametrize("written", [in_blocks, in_one])
def test_case_j1_a_line_that_changes_with_every_request_is_in_no_prompt_and_makes_no_root(
    wired: Callable[..., Any], written: Callable[..., Any], tmp_path: Path
) -> None:
    room = wired()
    room.script("A<|im_end|>", "B<|im_end|>")
    it = Speaker(room)
    first = it.ask("Hi", system=written(billing("aaaaa"), "You are an agent"))
    it.ask("Hi", said(first), "More", system=written(billing("bbbbb"), "You are an agent"))
    assert "billing" not in room.text(it.prompts[1])
    assert "<|im_start|>system\nYou are an agent<|im_end|>" in room.text(it.prompts[1])
    summary = it.agent.summary
    assert (summary["history"], summary["quirks"]) == ({"root": 1, "spliced": 1}, {"billing_line": 2})
    rollout = it.agent.exported(tmp_path)
    assert len(rollout.sequences) == 1
    notes: Any = rollout.extra["turnstile.calls"]
    assert [notes[each]["notes"] for each in ("c0", "c1")] == [[{"code": "quirk", "detail": "billing_line"}]] * 2


@pytest.mark.parametrize("written", [in_blocks, in_one])
def test_case_j1_with_the_rule_off_each_turn_is_a_new_root(
    without_quirks: Any, written: Callable[..., Any], tmp_path: Path
) -> None:
    room = without_quirks
    room.script("A<|im_end|>", "B<|im_end|>")
    it = Speaker(room)
    first = it.ask("Hi", system=written(billing("aaaaa"), "You are an agent"))
    it.ask("Hi", said(first), "More", system=written(billing("bbbbb"), "You are an agent"))
    calls = it.agent.exported(tmp_path).calls
    assert [(call.history, call.history_reason) for call in calls] == [
        ("root", None), ("root", "head_changed"),
    ]  # fmt: skip
    assert billing("bbbbb") in room.text(it.prompts[1])
    first_call, second_call = (state.started for state in room.forest(it.agent).calls.values())
    assert first_call.notes == ()
    assert ("head_parts", "system[0]") in [(note.code, note.detail) for note in second_call.notes]
    assert it.agent.summary["quirks"] == {}


def test_case_j1_a_similar_line_of_a_user_is_left_where_it_is(wired: Callable[..., Any]) -> None:
    room = wired()
    room.script("A<|im_end|>")
    it = Speaker(room)
    it.ask(f"{billing('aaaaa')}\nWhat is this?", system="You are an agent")
    assert f"{billing('aaaaa')}\nWhat is this?" in room.text(it.prompts[0])
    assert it.agent.summary["quirks"] == {}


def test_case_j1_a_retry_whose_line_has_changed_is_given_the_same_answer(wired: Callable[..., Any]) -> None:
    room = wired()
    room.script("A<|im_end|>")
    it = Speaker(room)
    first = it.ask("Hi", system=billing("aaaaa"))
    again = it.ask("Hi", system=billing("bbbbb"), headers={"x-stainless-retry-count": "1"})
    assert again.json()["content"] == first.json()["content"]
    assert (it.agent.summary["calls"], it.agent.summary["retries"]) == (1, 1)


def test_a_count_is_of_the_prompt_without_the_line(wired: Callable[..., Any]) -> None:
    room = wired()
    room.script("A<|im_end|>")
    it = Speaker(room)
    system = in_blocks(billing("aaaaa"), "You are an agent")
    it.ask("Hi", system=system)
    counted = it.ask("Hi", system=system, path="/count_tokens")
    assert counted.json() == {"input_tokens": len(it.prompts[0])}


def three_turns(room: Any, agent: Any, wires: Any) -> None:
    room.script(CALL, CALL, "Done<|im_end|>")
    ls = wires.tool("ls", p="string")
    history: list[Any] = [{"role": "system", "content": "You are a coding agent."}, "Fix the bug."]
    for _ in range(3):
        answer = agent.say(*history, tools=[ls])
        calls = answer.message.get("tool_calls", [])
        history += [answer.message, *(wires.tool_result(each["id"], "ok") for each in calls)]


def side_calls(room: Any, agent: Any) -> None:
    room.script("Q<|im_end|>", '{"title": "Fix"}<|im_end|>', "Fix bug<|im_end|>")
    agent.say("quota", max_tokens=1)
    schema = {"type": "json_schema", "json_schema": {"name": "title", "schema": TITLE_SCHEMA}}
    agent.say({"role": "system", "content": "Name it."}, "Fix the bug.", response_format=schema)
    agent.say({"role": "system", "content": "Write a title for this conversation."}, "Fix the bug.")


def test_case_j3_looks_and_side_calls_cost_a_good_rollout_nothing(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired()
    agent = room.agent()
    base = f"{room.client.url}/r/{agent.handle.rollout_id}"
    looked = [room.http.get(f"{base}/{path}").status_code for path in ("version", "api/tags", "props", "x/y")] * 5
    side_calls(room, agent)
    three_turns(room, agent, wires)
    agent.handle.finish(reward=1.0)

    assert looked == [404] * 20
    rollout = agent.exported(tmp_path)
    assert [(call.kind, call.kind_reason, call.parent) for call in rollout.calls] == [
        ("auxiliary", "quota", None), ("auxiliary", "title", None), ("auxiliary", "title", None),
        ("agent", None, None), ("agent", None, 3), ("agent", None, 4),
    ]  # fmt: skip
    assert all(call.complete for call in rollout.calls)
    assert rollout.trainable
    main = rollout.sequences[-1]
    assert (len(rollout.sequences), main.complete) == (4, True)
    assert len(wires.sampled(main)) == 3
    for side in rollout.sequences[:3]:
        assert [part.mask_reason for part, _ in side.sampled_segments()] == ["auxiliary"]
        assert wires.sampled(side) == []
    counts = rollout.token_counts
    assert counts.trainable == sum(map(len, wires.sampled(main)))
    assert (set(counts.masked), counts.discarded) == ({"auxiliary"}, {})
    assert counts.sampled == counts.trainable + counts.masked["auxiliary"]
    summary = agent.summary
    assert summary["kinds"] == {"auxiliary:quota": 1, "auxiliary:title": 2, "turn": 3}
    assert summary["quirks"] == {"claude_code_quota": 1, "claude_code_title": 1, "conversation_title": 1}


def test_case_j3_a_side_call_whose_rule_is_off_is_a_turn(without_quirks: Any, tmp_path: Path) -> None:
    room = without_quirks
    room.script("Q<|im_end|>")
    agent = room.agent()
    agent.say("quota", max_tokens=1)
    (call,) = agent.exported(tmp_path).calls
    assert (call.kind, agent.summary["kinds"]) == ("agent", {"turn": 1})


def test_a_summary_that_the_harness_asks_for_leaves_the_turns_before_it_a_row_of_their_own(
    wired: Callable[..., Any], wires: Any, tmp_path: Path
) -> None:
    room = wired()
    answers = room.script("A<|im_end|>", "S<|im_end|>", "B<|im_end|>")
    it = Speaker(room)
    first = it.ask("Hi")
    it.ask("Hi", said(first), "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nSummarise.")
    it.ask("Hi", said(first), "More")
    rollout = it.agent.exported(tmp_path)
    assert [(call.kind, call.kind_reason, call.parent) for call in rollout.calls] == [
        ("agent", None, None), ("auxiliary", "compaction", 0), ("agent", None, 0),
    ]  # fmt: skip
    assert [wires.sampled(each) for each in rollout.sequences] == [[], [answers[0], answers[2]]]
    assert rollout.token_counts.masked == {"auxiliary": len(answers[1])}


def test_case_c6_a_sub_agent_is_named_by_its_header_and_does_not_disturb_the_main_agent(
    wired: Callable[..., Any], tmp_path: Path
) -> None:
    room = wired()
    room.script("A<|im_end|>", "X<|im_end|>", "B<|im_end|>")
    it = Speaker(room)
    sub = {"x-session-id": "ses_2", "x-parent-session-id": "ses_1"}
    first = it.ask("u1", system="Main.", headers={"x-session-id": "ses_1"})
    it.ask("x", system="Sub.", headers=sub)
    it.ask("u1", said(first), "t1", system="Main.", headers={"x-session-id": "ses_1"})
    rollout = it.agent.exported(tmp_path)
    assert [call.agent_name for call in rollout.calls] == [None, "ses_2", None]
    assert [(each.agent_name, len(list(each.sampled_segments()))) for each in rollout.sequences] == [
        ("ses_2", 1), (None, 2),
    ]  # fmt: skip
    facts: Any = rollout.extra["turnstile.calls"]
    assert facts["c1"]["parent_agent"] == "ses_1"
    assert {call.kind for call in rollout.calls} == {"agent"}


def test_own_entries_of_a_file_act_like_those_that_are_known(with_own_quirks: Any, tmp_path: Path) -> None:
    room = with_own_quirks
    room.script("A<|im_end|>", "B<|im_end|>", "7<|im_end|>")
    agent = room.agent()
    first = agent.say({"role": "system", "content": "Rules.\nNow: 10:00\nBe brief."}, "Hi")
    second = agent.say({"role": "system", "content": "Rules.\nNow: 10:01\nBe brief."}, "Hi", first.message, "More")
    agent.say({"role": "system", "content": "You judge the last step."}, "A step")
    assert (second.history, "Now:" in room.text(second.prompt)) == ("spliced", False)
    assert [(call.kind, call.kind_reason) for call in agent.exported(tmp_path).calls] == [
        ("agent", None), ("agent", None), ("auxiliary", "judge"),
    ]  # fmt: skip
    assert agent.summary["quirks"] == {"clock": 2, "judge": 1}


def test_what_a_harness_sent_is_in_the_journal_after_a_restart(wired: Callable[..., Any]) -> None:
    room = wired()
    room.script("A<|im_end|>")
    it = Speaker(room)
    it.ask("quota", max_tokens=1, headers={"x-claude-code-agent-id": "a1"})
    (state,) = room.forest(it.agent).calls.values()
    assert (state.started.kind, state.started.purpose, state.started.agent_name) == ("auxiliary", "quota", "a1")
