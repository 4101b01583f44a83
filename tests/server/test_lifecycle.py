"""Behind its end: a rollout is noted as exported, deleted, and told of for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import CallerError

STOPS = ["<|im_end|>"]


@pytest.fixture(scope="module")
def room(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    with wire_up(tools_folder, STOPS) as room:
        yield room


def ended(room: Any, rollout_id: str, **opening: str) -> None:
    room.script("Bye.<|im_end|>")
    agent = room.agent(rollout_id=rollout_id, **opening)
    agent.say("Hi")
    agent.handle.finish(reward=1.0)


def refusal(work: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(CallerError) as refused:
        work()
    return refused.value.code, refused.value.status


def listed(room: Any, **query: str) -> list[tuple[str, str | None]]:
    found = room.http.get(f"{room.client.url}/rollouts", params=query).json()["rollouts"]
    return [(each["rollout_id"], each["exported_to"]) for each in found]


def test_a_rollout_that_was_handed_over_can_go_and_leaves_its_figures(room: Any) -> None:
    ended(room, "r1")
    assert refusal(lambda: room.client.delete("r1")) == ("rollout_unexported", 409)
    room.client.mark_exported("r1", to="a trainer")
    (stone,) = room.client.delete("r1")
    assert (stone.rollout_id, stone.attempt, stone.status, stone.reason, stone.exported_to, stone.calls) == (
        "r1",
        1,
        "completed",
        "asked",
        "a trainer",
        1,
    )
    gone = room.http.get(f"{room.client.url}/rollouts/r1")
    assert (gone.status_code, gone.json()["error"]["code"]) == (410, "rollout_deleted")
    assert f"with 1 calls and {stone.sampled_tokens} sampled tokens, was deleted at" in gone.json()["error"]["message"]


def test_a_deleted_id_answers_410_to_agents_and_begins_its_next_attempt_only_by_name(room: Any) -> None:
    ended(room, "r2")
    room.client.delete("r2", unexported="delete")
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    assert room.http.post(f"{room.client.url}/r/r2/v1/chat/completions", json=body).status_code == 410
    assert refusal(lambda: room.client.delete("r2")) == ("rollout_deleted", 410)
    assert room.client.rollout("r2").attempt == 2


def test_an_open_rollout_is_neither_noted_nor_deleted(room: Any) -> None:
    handle = room.client.rollout("r3")
    assert refusal(lambda: room.client.mark_exported("r3", to="x")) == ("rollout_open", 409)
    assert refusal(lambda: handle.delete(unexported="delete")) == ("rollout_open", 409)
    assert refusal(lambda: room.client.delete("never")) == ("rollout_not_found", 404)
    assert refusal(lambda: room.client.mark_exported("r3", to="x", attempt=7)) == ("rollout_not_found", 404)


def test_attempts_go_one_by_one_or_all_together(room: Any) -> None:
    for _ in range(3):
        room.client.rollout("r4").finish()
    assert [each.attempt for each in room.client.delete("r4", attempt=2, unexported="delete")] == [2]
    assert room.client.trajectory("r4").attempt == 3
    assert [each.attempt for each in room.client.delete("r4", unexported="delete")] == [1, 3]


def test_listings_can_be_narrowed_to_what_left_or_did_not(room: Any) -> None:
    for name in ("a", "b"):
        ended(room, name, group_id="ab")
    assert room.client.trajectory("a", exported_to="file").rollout_id == "a"
    narrowed = [listed(room, group_id="ab", exported=which) for which in ("yes", "no")]
    assert narrowed == [[("a", "file")], [("b", None)]]
    assert room.http.get(f"{room.client.url}/rollouts", params={"exported": "maybe"}).status_code == 400


def test_a_trainer_that_waits_for_groups_has_them_noted_when_it_asks_for_more(room: Any) -> None:
    for name in ("a1", "a2"):
        room.client.rollout(name, group_id="a").finish()
    given = room.client.trajectories(group_id="a")
    assert next(given).rollout_id == "a1"
    assert listed(room, group_id="a", exported="yes") == []
    assert [each.rollout_id for each in given] == ["a2"]
    assert listed(room, group_id="a", exported="yes") == [("a1", "trainer"), ("a2", "trainer")]


def test_a_look_that_is_not_to_count_is_not_noted(room: Any) -> None:
    room.client.rollout("c1", group_id="c").finish()
    assert len(list(room.client.trajectories(group_id="c", exported_to=""))) == 1
    assert listed(room, group_id="c", exported="yes") == []


@pytest.mark.parametrize(
    ("query", "param"), [("attempt=0", "attempt"), ("attempt=x", "attempt"), ("unexported=yes", "unexported")]
)
def test_what_cannot_be_meant_is_refused_by_name(room: Any, query: str, param: str) -> None:
    answer = room.http.delete(f"{room.client.url}/rollouts/r?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"to": ""}', b'{"to": "x", "attempt": 0}', b'{"to": "x", "more": 1}'])
def test_a_note_says_where_to(room: Any, body: bytes) -> None:
    assert room.http.post(f"{room.client.url}/rollouts/r/exported", content=body).status_code == 400


def test_only_an_operator_deletes_or_notes(wire_up: Callable[..., Any], tools_folder: Path) -> None:
    with wire_up(tools_folder, STOPS, admin_key="k" * 20, read_key="r" * 20) as room:
        handle = room.client.rollout("r")
        handle.finish()
        for key in (handle.agent_key, "r" * 20, ""):
            headers = {"authorization": f"Bearer {key}"} if key else {"authorization": ""}
            asked = [
                room.http.delete(f"{room.client.url}/rollouts/r?unexported=delete", headers=headers),
                room.http.post(f"{room.client.url}/rollouts/r/exported", json={"to": "x"}, headers=headers),
            ]
            assert {each.status_code for each in asked} <= {401, 403}
        assert len(room.client.delete("r", unexported="delete")) == 1
