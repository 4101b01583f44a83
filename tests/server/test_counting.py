"""Public case J2: how long a prompt would be, asked without a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

VERSION = {"anthropic-version": "2023-06-01"}


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


def count(room: Any, base: str, *messages: dict[str, Any], headers: dict[str, str] = VERSION, **fields: Any) -> Any:
    body = {"model": "m", "messages": list(messages), **fields}
    return room.http.post(f"{room.client.url}{base}/v1/messages/count_tokens", json=body, headers=headers)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_case_j2_a_count_is_the_length_of_the_spliced_prompt_and_leaves_no_trace(room: Any) -> None:
    room.script("One.<|im_end|>", "Two.<|im_end|>")
    agent = room.agent()
    history = [user("Hi"), {"role": "assistant", "content": "One."}, user("Again")]
    first = agent.say("Hi")
    counted = count(room, f"/r/{agent.handle.rollout_id}", *history).json()
    before = agent.summary
    second = agent.say(*history)
    assert counted == {"input_tokens": len(second.prompt)}
    assert (second.history, before["calls"], before["failed_calls"]) == ("spliced", 1, {})
    assert second.prompt[: len(first.prompt)] == first.prompt


def test_a_count_begins_no_rollout(room: Any) -> None:
    counted = count(room, "/r/never-seen", user("Hi"))
    assert (counted.status_code, room.http.get(f"{room.client.url}/rollouts/never-seen").status_code) == (200, 404)
    assert counted.headers["x-turnstile-rollout"] == "never-seen"


def test_a_count_needs_no_rollout_at_all_and_its_key_may_name_one(room: Any) -> None:
    room.script("One.<|im_end|>")
    agent = room.agent()
    agent.say("Hi")
    named = count(room, "", user("Hi"), headers={"x-api-key": f"ts_{agent.handle.rollout_id}_x"})
    assert named.headers["x-turnstile-rollout"] == agent.handle.rollout_id
    assert count(room, "", user("Hi")).json() == named.json()


@pytest.mark.parametrize(
    ("fields", "status", "kind"),
    [
        ({"model": "claude-9"}, 404, "not_found_error"),
        ({"system": 7}, 400, "invalid_request_error"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 400, "invalid_request_error"),
    ],
)
def test_what_cannot_be_counted_is_refused_in_the_dialects_shape(
    room: Any, fields: dict[str, Any], status: int, kind: str
) -> None:
    answer = count(room, "/r/x", user("Hi"), **fields)
    body = answer.json()
    assert (answer.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert answer.headers["request-id"].startswith("req_")
