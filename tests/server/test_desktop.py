"""Liveness, figures and the model list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


HEALTHY = {
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


def test_health_names_the_engine_and_the_model(room: Any, wires: Any) -> None:
    answer = ask(room, "GET", "/healthz")
    told = answer.json()
    assert wires.troubles(told) == []
    assert told.pop("status") == ("degraded" if told.pop("reasons") else "ok")
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


def test_anthropics_clients_are_shown_the_models_as_they_know_them(room: Any) -> None:
    def shown(path: str) -> Any:
        return room.http.get(room.client.url + path, headers={"anthropic-version": "2023-06-01"})

    assert [model["type"] for model in shown("/r/looks-only/v1/models").json()["data"]] == ["model"]
    assert shown("/v1/models/m").json()["display_name"] == "m"
    missing = shown("/v1/models/claude-9")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")


def test_the_model_list_begins_no_rollout(room: Any) -> None:
    before = ask(room, "GET", "/healthz").json()["open_rollouts"]
    listed = ask(room, "GET", "/r/looks-only/v1/models").json()
    assert [model["id"] for model in listed["data"]] == ["m"]
    assert ask(room, "GET", "/r/looks-only/v1/models/m").json()["id"] == "m"
    assert ask(room, "GET", "/r/looks-only/v1/models/gpt-9").status_code == 404
    assert ask(room, "GET", "/rollouts/looks-only").status_code == 404
    assert ask(room, "GET", "/healthz").json()["open_rollouts"] == before
