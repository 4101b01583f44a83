"""The routes, and what answers where nothing is."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


HEALTHY = {
    "status": "ok",
    "reasons": [],
    "engine": "llamacpp",
    "engine_version": "b0-fake",
    "engine_can": [],
    "engine_lacks": [],
    "model": "m",
    "template": "exact",
    "template_limits": [],
}


def ask(room: Any, method: str, path: str) -> Any:
    return room.http.request(method, room.client.url + path)


def test_health_names_the_engine_and_the_model(room: Any) -> None:
    answer = ask(room, "GET", "/healthz")
    told = answer.json()
    assert told.pop("open_rollouts") >= 0
    assert told.pop("patterns")["certified"] > 0
    assert sorted(told.pop("accelerated")) == ["encodes", "refused", "renders"]
    name = f"127.0.0.1:{room.fake.port}"
    (engine,), (policy,) = told.pop("engines"), told.pop("policy")
    assert (answer.status_code, told) == (200, HEALTHY)
    assert (engine["name"], engine["is_up"], engine["capacity"], engine["running"]) == (name, True, room.fake.slots, 0)
    assert (policy["engine"], policy["held_until"], policy["waiting"]) == (name, None, 0)


def test_metrics_are_prometheus_text(room: Any) -> None:
    answer = ask(room, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "turnstile_open_rollouts" in answer.text
    assert f'turnstile_engine_up{{engine="127.0.0.1:{room.fake.port}"}} 1.0' in answer.text


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/nothing"), ("POST", "/r/x/v1/nothing"), ("GET", "/r/x/v1/chat/completions"), ("DELETE", "/rollouts")],
)
def test_where_nothing_answers_the_error_says_so_in_a_dialects_shape(room: Any, method: str, path: str) -> None:
    answer = ask(room, method, path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (404, "not_found", "invalid_request_error")
    assert f"{method} {path}" in error["message"]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/r/x/v1/responses/compact", "/v1/responses/compact"),
        ("/r/x/v1/completions", "/v1/completions"),
        ("/r/x/embeddings", "/embeddings"),
    ],
)
def test_a_dialect_that_is_not_served_is_named_with_the_one_that_is(room: Any, path: str, named: str) -> None:
    answer = ask(room, "POST", path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert answer.json()["error"]["message"] == (
        f"`{named}` is not served in this version. "
        "Use /v1/chat/completions, /v1/responses, /v1/messages or /v1beta/models/MODEL:generateContent."
    )


def test_a_base_url_with_one_v1_too_many_is_told_of_it(room: Any) -> None:
    answer = ask(room, "POST", "/r/x/v1/v1/messages")
    assert answer.json()["error"]["message"] == (
        "Nothing answers POST /r/x/v1/v1/messages. Leave /v1 out of the client's base URL: this client adds it itself."
    )


def test_a_path_with_a_slash_too_many_is_not_found_and_sends_nobody_elsewhere(room: Any) -> None:
    answer = room.http.request(
        "POST", room.client.url + "/r/slash/v1/chat/completions/", headers={"host": "elsewhere.example"}
    )
    assert (answer.status_code, answer.headers.get("location")) == (404, None)


def test_what_else_google_does_with_models_is_refused_in_googles_shape(room: Any) -> None:
    answer = ask(room, "POST", "/r/x/v1beta/models/m:embedContent")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["status"]) == (404, 404, "NOT_FOUND")
    assert error["message"].startswith("`/v1beta/models/m:embedContent` is not served in this version.")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/r/x/v1/messages"), ("POST", "/r/x/v1/messages/batches"), ("GET", "/v1/messages/batches/7")],
)
def test_where_nothing_answers_under_anthropics_path_the_error_has_anthropics_shape(
    room: Any, method: str, path: str
) -> None:
    answer = ask(room, method, path)
    body = answer.json()
    assert (answer.status_code, body["type"], body["error"]["type"]) == (404, "error", "not_found_error")
    assert f"{method} {path}" in body["error"]["message"]


def test_anthropics_clients_are_shown_the_models_as_they_know_them(room: Any) -> None:
    def shown(path: str) -> Any:
        return room.http.get(room.client.url + path, headers={"anthropic-version": "2023-06-01"})

    assert [model["type"] for model in shown("/r/looks-only/v1/models").json()["data"]] == ["model"]
    assert shown("/v1/models/m").json()["display_name"] == "m"
    missing = shown("/v1/models/claude-9")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")


def test_every_answer_has_a_request_id(room: Any) -> None:
    room.script("A<|im_end|>")
    said = room.agent().say("Hi").headers
    assert said["request-id"] == said["x-request-id"] == f"req_{said['x-turnstile-rollout']}-c0"
    assert ask(room, "GET", "/nothing").headers["request-id"].startswith("req_")


def test_the_model_list_begins_no_rollout(room: Any) -> None:
    before = ask(room, "GET", "/healthz").json()["open_rollouts"]
    listed = ask(room, "GET", "/r/looks-only/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["m"]
    assert ask(room, "GET", "/r/looks-only/v1/models/m").json()["id"] == "m"
    assert ask(room, "GET", "/r/looks-only/v1/models/gpt-9").status_code == 404
    assert ask(room, "GET", "/rollouts/looks-only").status_code == 404
    assert ask(room, "GET", "/healthz").json()["open_rollouts"] == before


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
