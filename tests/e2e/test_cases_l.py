"""Public case L3 end to end: weights are updated while agents work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

LONG = "one two three four five six seven eight nine ten eleven twelve<|im_end|>"


def versions(agent: Any) -> list[tuple[int | None, int | None]]:
    (sequence,) = agent.handle.trajectory().sequences
    return [(part.policy_version_min, part.policy_version_max) for part, _ in sequence.sampled_segments()]


@pytest.fixture
def room(wire_up: Callable[..., Any], tools_folder: Path) -> Any:
    with wire_up(tools_folder, ("<|im_end|>",), keep_alive_s=0.1) as room:
        yield room


def test_case_l3_a_call_that_an_announcement_straddles_has_a_range_and_the_next_one_its_version(
    room: Any, wires: Any
) -> None:
    agent = room.agent()
    room.client.announce_policy(6)
    room.script(LONG, "Yes.<|im_end|>")
    room.fake.held = True
    with ThreadPoolExecutor(1) as clients:
        saying = clients.submit(agent.say, "Hi")
        wires.eventually(lambda: room.fake.requests)
        room.client.announce_policy(7)
        room.fake.held = False
        said = saying.result()
    agent.say("Hi", said.message, "more")
    assert versions(agent) == [(6, 7), (7, 7)]


def test_case_l3_held_calls_wait_with_signs_of_life_and_go_on_under_the_new_version(room: Any, wires: Any) -> None:
    agent = room.agent()
    room.client.announce_policy(6)
    page = room.client.hold_policy(deadline_s=30)
    assert [(each.running, each.waiting, each.held_until is not None) for each in page.engines] == [(0, 0, True)]
    room.script("Yes.<|im_end|>")
    before = len(room.fake.requests)
    with ThreadPoolExecutor(1) as clients:
        saying = clients.submit(agent.say, "Hi", stream=True)
        wires.eventually(lambda: room.get("/policy")["engines"][0]["waiting"])
        time.sleep(0.3)
        assert (saying.done(), len(room.fake.requests)) == (False, before)
        room.client.announce_policy(7)
        said = saying.result()
    assert (said.text, said.ended, versions(agent)) == ("Yes.", True, [(7, 7)])
    assert sum(line.startswith(b":") for line in said.body.split(b"\n")) >= 2
    assert agent.summary["notes"]["held_for_policy"] == 1


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/chat/completions", {}, lambda error: error["error"]["code"] == "policy_hold_expired"),
        ("/v1/messages", {"max_tokens": 9}, lambda error: error["error"]["type"] == "overloaded_error"),
        ("/v1/responses", {"input": "Hi"}, lambda error: error["error"]["code"] == "policy_hold_expired"),
        ("/v1beta/models/m:generateContent", {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
         lambda error: error["error"]["status"] == "UNAVAILABLE"),
    ],
    ids=["chat", "messages", "responses", "gemini"],
)  # fmt: skip
def test_case_l3_when_the_deadline_passes_clients_are_told_in_their_dialect_to_come_back(
    room: Any, path: str, body: dict[str, Any], told: Callable[[Any], bool]
) -> None:
    agent = room.agent()
    base = f"{room.client.url}/r/{agent.handle.rollout_id}"
    messages = {"messages": [{"role": "user", "content": "Hi"}]} if path in ("/v1/chat/completions", "/v1/messages") else {}  # fmt: skip # noqa: E501
    model = {} if "v1beta" in path else {"model": "m"}
    room.client.hold_policy(deadline_s=0.1)
    answer = httpx.post(f"{base}{path}", json={**model, **messages, **body}, timeout=20, trust_env=False)
    health = httpx.get(f"{room.client.url}/healthz", trust_env=False).json()
    room.client.release_policy()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert told(answer.json())
    assert health["status"] == "degraded"
    assert "the deadline passed" in health["reasons"][0]
    assert agent.summary["failed_calls"] == {"policy_hold": 1}
    assert httpx.get(f"{room.client.url}/healthz", trust_env=False).json()["status"] == "ok"


def test_case_l3_where_it_is_chosen_held_calls_go_on_when_the_deadline_passes(
    wire_up: Callable[..., Any], tools_folder: Path
) -> None:
    with wire_up(tools_folder, ("<|im_end|>",), hold_expiry="continue") as room:
        room.script("Yes.<|im_end|>")
        agent = room.agent()
        room.client.hold_policy(deadline_s=0.1)
        assert agent.say("Hi").text == "Yes."
        assert versions(agent) == [(None, None)]


def test_what_was_announced_survives_a_restart_of_turnstile(
    wire_up: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    with wire_up(tools_folder, ("<|im_end|>",), store=tmp_path) as room:
        room.client.announce_policy(7, label="v7")
        named = room.get("/policy")["engines"][0]["engine"]
    with wire_up(tools_folder, ("<|im_end|>",), store=tmp_path) as room:
        # Another engine, at another port: nothing is known of that one, and labels mean what they meant.
        assert room.get("/policy")["engines"][0]["engine"] != named
        assert room.get("/policy")["engines"][0]["version"] is None
        assert room.get("/policy")["labels"] == {"v7": 7}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"version": -1}, "invalid_request", "version"),
        ({"version": "7"}, "invalid_request", "version"),
        ({"version": 2**63}, "invalid_request", "version"),
        ({}, "invalid_request", ""),
        ({"version": 7, "label": "8"}, "policy_label_contradicts", "label"),
        ({"version": 7, "engine": "nowhere:1"}, "engine_unknown", "engine"),
        ({"version": 7, "label": "x" * 257}, "invalid_request", "label"),
        ({"version": 7, "labels": "x"}, "invalid_request", ""),
    ],
)
def test_an_announcement_that_cannot_be_is_refused_by_name(
    room: Any, body: dict[str, Any], code: str, param: str
) -> None:
    answer = httpx.post(f"{room.client.url}/policy", content=json.dumps(body), trust_env=False)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"] or "") == (400, code, param)
    assert room.get("/policy")["engines"][0]["version"] is None
