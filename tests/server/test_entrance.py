"""Which rollout a request belongs to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


def ask(room: Any, method: str, path: str) -> Any:
    return room.http.request(method, room.client.url + path)


def test_without_keys_a_rollout_begins_with_its_first_call(room: Any) -> None:
    room.script("A<|im_end|>")
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    answer = room.http.post(f"{room.client.url}/r/first-use/chat/completions", json=body)
    assert (answer.status_code, answer.headers["x-turnstile-rollout"]) == (200, "first-use")
    assert ask(room, "GET", "/rollouts/first-use").json()["calls"] == 1


def test_a_call_that_names_no_rollout_or_an_impossible_one_is_refused(room: Any) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    unnamed = room.http.post(f"{room.client.url}/v1/chat/completions", json=body)
    impossible = room.http.post(f"{room.client.url}/r/a%20b/v1/chat/completions", json=body)
    assert (unnamed.status_code, unnamed.json()["error"]["code"]) == (404, "rollout_not_named")
    assert (impossible.status_code, impossible.json()["error"]["code"]) == (400, "rollout_id_invalid")


def test_many_first_calls_at_once_are_calls_of_one_rollout(room: Any, wires: Any) -> None:
    room.fake.answer = lambda _: room.ids("A<|im_end|>")
    url = f"{room.client.url}/r/many/v1/chat/completions"

    def call(at: int) -> int:
        return room.http.post(url, json={"model": "m", "messages": [{"role": "user", "content": f"{at}"}]}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(16))) == [200] * 16
    summary = ask(room, "GET", "/rollouts/many").json()
    assert (summary["calls"], summary["attempt"]) == (16, 1)
