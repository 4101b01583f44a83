"""The routes, and what answers where nothing is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


def ask(room: Any, method: str, path: str) -> Any:
    return room.http.request(method, room.client.url + path)


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
        "POST", room.client.url + "/r/slash/v1/chat/completions/", headers={"host": "elsewhere.localhost"}
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


def test_every_answer_has_a_request_id(room: Any) -> None:
    room.script("A<|im_end|>")
    said = room.agent().say("Hi").headers
    assert said["request-id"] == said["x-request-id"] == f"req_{said['x-turnstile-rollout']}-c0"
    assert ask(room, "GET", "/nothing").headers["request-id"].startswith("req_")
