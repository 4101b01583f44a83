"""Requests that meet each other, and requests that would once have left a rollout unreadable."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


LONG = ["word"] * 300
"""Long enough that its planning is still under way when its repeats arrive."""


@pytest.mark.parametrize("mark", [{"idempotency-key": "k"}, {"x-stainless-retry-count": "1"}])
def test_retries_that_arrive_while_their_call_is_being_planned_join_it(
    room: Any, mark: dict[str, str], tmp_path: Path
) -> None:
    agent = room.agent()
    room.script("One.<|im_end|>")
    body = agent.body(*LONG)
    with ThreadPoolExecutor(6) as clients:
        said = [each.result() for each in [clients.submit(agent.post, body, mark) for _ in range(6)]]
    assert {(each.status, each.text, each.call_id) for each in said} == {(200, "One.", "c0")}
    rollout = agent.exported(tmp_path)
    assert [call.call_id for call in rollout.calls] == ["c0"]
    assert len(room.forest(agent).calls["c0"].joined) == 5


def test_a_refused_request_costs_no_later_call_its_place(room: Any, wires: Any, tmp_path: Path) -> None:
    agent = room.agent()
    room.script("One.<|im_end|>", "Two.<|im_end|>")
    refused = agent.say("hi", response_format={"type": "json_object"}, tool_choice="required", tools=[wires.tool("ls")])
    assert refused.status == 400
    first = agent.say("hi")
    second = agent.say("hi", first.message, "more")
    assert (first.text, second.text, second.history) == ("One.", "Two.", "spliced")
    assert len(agent.exported(tmp_path).sequences) == 1


@pytest.mark.parametrize("fields", [{"repetition_penalty": 1e308}, {"repetition_penalty": 11}])
def test_a_setting_that_no_float32_holds_is_refused_by_name(room: Any, fields: dict[str, float]) -> None:
    said = room.agent().say("hi", **fields)
    assert (said.status, said.error["param"]) == (400, "repetition_penalty")


def test_a_schema_that_means_nothing_is_no_error_of_ours(room: Any, wires: Any) -> None:
    agent = room.agent()
    tool = wires.tool("ls", p="string")
    tool["function"]["parameters"]["properties"]["p"] = {"type": [{}]}
    room.script('<tool_call>\n{"name": "ls", "arguments": {"p": "a"}}\n</tool_call><|im_end|>')
    assert agent.say("hi", tools=[tool], tool_choice="required").status == 200


@pytest.mark.parametrize("version", [2**70, -1])
def test_a_policy_version_that_no_record_holds_is_refused(room: Any, version: int) -> None:
    assert room.http.post(f"{room.client.url}/policy", json={"version": version}).status_code == 400


@pytest.mark.parametrize("limit", ["9" * 5001, "\u0661"])
def test_a_page_size_that_is_no_number_is_refused(room: Any, limit: str) -> None:
    assert room.http.get(f"{room.client.url}/rollouts", params={"limit": limit}).status_code == 400
