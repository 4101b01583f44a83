"""What whoever runs rollouts talks to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


def post(room: Any, path: str, body: bytes | dict[str, Any]) -> tuple[int, dict[str, Any]]:
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = room.http.post(f"{room.client.url}{path}", **sent)
    assert answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json()


def get(room: Any, path: str) -> tuple[int, dict[str, Any]]:
    answer = room.http.get(f"{room.client.url}{path}")
    return answer.status_code, answer.json()


def test_opening_gives_a_key_and_where_agents_go(room: Any) -> None:
    status, opened = post(room, "/rollouts", b"")
    base = f"{room.client.url}/r/{opened['rollout_id']}"
    assert status == 201
    assert opened.pop("agent_key").startswith(f"ts_{opened['rollout_id']}_")
    assert opened == {
        "rollout_id": opened["rollout_id"], "attempt": 1, "base_url": base, "openai_base_url": f"{base}/v1",
        "anthropic_base_url": base,
    }  # fmt: skip


def test_an_open_rollout_is_a_conflict_and_a_closed_one_starts_its_next_attempt(room: Any) -> None:
    _, opened = post(room, "/rollouts", {})
    same = {"rollout_id": opened["rollout_id"]}
    conflict = post(room, "/rollouts", same)
    post(room, f"/rollouts/{opened['rollout_id']}/finish", {})
    _, again = post(room, "/rollouts", same)
    assert (conflict[0], conflict[1]["error"]["code"]) == (409, "rollout_open")
    assert again["attempt"] == 2


@pytest.mark.parametrize(
    "body",
    [
        b"not json", b"[]", b'{"rollout_id": 7}', b'{"rolout_id": "x"}', b'{"rollout_id": "a/b"}',
        b'{"sample_index": -1}', b'{"sample_index": 99999999999999999999}', b'{"metadata": [1]}',
        b'{"metadata": {"a": 1e999}}', b'{"metadata": {"a": "\xff"}}', b'{"group_id": "\\ud800"}',
        b'{"metadata": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    ],
)  # fmt: skip
def test_a_body_that_cannot_be_used_is_refused(room: Any, body: bytes) -> None:
    status, refused = post(room, "/rollouts", body)
    assert (status, refused["error"]["type"]) == (400, "invalid_request_error")


def test_a_body_over_the_limit_is_refused(room: Any) -> None:
    status, refused = post(room, "/rollouts", b" " * (33 * 2**20))
    assert (status, refused["error"]["code"]) == (413, "body_too_large")


def test_rollouts_are_listed_by_group_task_and_status_a_page_at_a_time(room: Any) -> None:
    names = [
        post(room, "/rollouts", {"group_id": "listed", "task_id": f"t{at % 2}"})[1]["rollout_id"] for at in range(3)
    ]
    post(room, f"/rollouts/{names[1]}/finish", {"reward": 0.5})

    def listed(query: str) -> list[str]:
        return [each["rollout_id"] for each in get(room, f"/rollouts?group_id=listed{query}")[1]["rollouts"]]

    assert listed("") == names
    assert listed("&task_id=t0") == [names[0], names[2]]
    assert listed("&status=completed") == [names[1]]
    first = get(room, "/rollouts?group_id=listed&limit=2")[1]
    assert [each["rollout_id"] for each in first["rollouts"]] == names[:2]
    assert listed(f"&limit=2&after={first['next']}") == names[2:]
    assert get(room, "/rollouts?group_id=listed&limit=4")[1]["next"] is None


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=1001", "after=-1", "status=done", "limit="])
def test_a_query_that_means_nothing_is_refused_by_name(room: Any, query: str) -> None:
    status, refused = get(room, f"/rollouts?{query}")
    assert (status, refused["error"]["param"]) == (400, query.partition("=")[0])


@pytest.mark.parametrize("path", ["", "/trajectory", "/drift"])
def test_what_is_not_there_is_not_found(room: Any, path: str) -> None:
    status, refused = get(room, f"/rollouts/nobody{path}")
    assert (status, refused["error"]["code"]) == (404, "rollout_not_found")


@pytest.mark.parametrize("body", [{"status": "running"}, {"status": "great"}, {"reward": "much"}, {"prize": 1}])
def test_an_ending_that_means_nothing_is_refused_and_the_rollout_stays_open(room: Any, body: dict[str, Any]) -> None:
    agent = room.agent()
    status, _ = post(room, f"/rollouts/{agent.handle.rollout_id}/finish", body)
    assert (status, agent.summary["status"]) == (400, "running")


@pytest.mark.parametrize(
    ("body", "param", "remedy"),
    [
        ({"status": "great"}, "status", "Use one of completed, truncated, failed, aborted."),
        ({"reward": "much"}, "reward", "Send a JSON object of status, reward, rewards, metadata; "),
        ({"prize": 1}, None, "Send a JSON object of status, reward, rewards, metadata; "),
    ],
)
def test_an_ending_that_means_nothing_is_told_what_may_stand_there(
    room: Any, body: dict[str, Any], param: str | None, remedy: str
) -> None:
    _, refused = post(room, f"/rollouts/{room.agent().handle.rollout_id}/finish", body)
    assert refused["error"]["param"] == param
    assert remedy in refused["error"]["message"]


def test_a_finished_rollout_is_summed_up_and_its_trajectory_and_drift_can_be_had(room: Any) -> None:
    room.script("Hello there.<|im_end|>", "Bye.<|im_end|>")
    agent = room.agent(task_id="t")
    first = agent.say("Hi")
    agent.say("Hi", first.message, "Bye")
    running = get(room, f"/rollouts/{agent.handle.rollout_id}/trajectory")[1]
    status, summary = post(room, f"/rollouts/{agent.handle.rollout_id}/finish", {"reward": 1, "status": "failed"})
    trajectory = get(room, f"/rollouts/{agent.handle.rollout_id}/trajectory")[1]
    drift = get(room, f"/rollouts/{agent.handle.rollout_id}/drift")[1]
    assert (status, summary["status"], summary["reward"], summary["calls"]) == (200, "failed", 1.0, 2)
    assert summary == agent.summary
    assert (running["status"], trajectory["status"], trajectory["reward"]) == ("running", "failed", 1.0)
    assert (drift["calls_compared"], drift["sequences"], drift["wrong"]) == (2, 1, 0)
    live = {name: summary["drift"][name] for name in ("calls", "calls_compared", "calls_differing", "prompt_wrong")}
    assert live == {"calls": 2, "calls_compared": 2, "calls_differing": 0, "prompt_wrong": 0}
    assert summary["drift"]["prompt_sampled"] == drift["prompt_sampled"] > 0
    assert post(room, f"/rollouts/{agent.handle.rollout_id}/finish", {})[0] == 409


def test_an_announced_version_stands_on_what_is_sampled_from_then_on(room: Any) -> None:
    room.script("A<|im_end|>", "B<|im_end|>")
    agent = room.agent()
    assert post(room, "/policy", {"version": 7}) == (200, {"version": 7})
    first = agent.say("Hi")
    room.client.announce_policy(8)
    agent.say("Hi", first.message, "more")
    (sequence,) = agent.handle.trajectory().sequences
    spans = [(part.policy_version_min, part.policy_version_max) for part, _ in sequence.sampled_segments()]
    assert spans == [(7, 7), (8, 8)]
    assert post(room, "/policy", {"version": "new"})[0] == 400
