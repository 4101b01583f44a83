"""`turnstile.Client`: what a trainer's process calls."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from turnstile.client import Client
from turnstile.errors import CallerError, EngineError, TurnstileError


@pytest.fixture
def client(wired: Callable[..., Any]) -> Client:
    return wired().client


def test_a_rollout_is_run_scored_and_fetched(wired: Callable[..., Any]) -> None:
    room = wired()
    room.script("A<|im_end|>")
    with room.client.rollout(group_id="g", task_id="t", sample_index=2, metadata={"k": [1, None]}) as rollout:
        said = room.http.post(
            f"{rollout.openai_base_url}/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
            headers={"authorization": f"Bearer {rollout.agent_key}"},
        )
        assert said.status_code == 200
        rollout.finish(reward=0.5, rewards={"style": None, "task": 1.0}, status="truncated", metadata={"note": "x"})
    found = rollout.trajectory()
    assert (found.rollout_id, found.group_id, found.task_id, found.sample_index) == (rollout.rollout_id, "g", "t", 2)
    assert (found.status, found.reward, found.rewards) == ("truncated", 0.5, {"style": None, "task": 1.0})
    assert len(found.sequences) == 1


def test_a_reward_may_be_a_number_of_any_library(client: Client) -> None:
    class Float32:
        def __float__(self) -> float:
            return 0.25

    class Int64:
        def __index__(self) -> int:
            return 7

    with client.rollout() as rollout:
        rollout.finish(reward=True, rewards={"style": Float32()}, metadata={"step": Int64(), "loss": Float32()})
    found = rollout.trajectory()
    assert (found.reward, found.rewards) == (1.0, {"style": 0.25})
    assert found.extra["turnstile.metadata"] == {"finished": {"step": 7, "loss": 0.25}}


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_not_finite_is_refused_and_the_rollout_stays_open(client: Client, reward: float) -> None:
    with client.rollout() as rollout:
        with pytest.raises(CallerError, match="`reward` is"):
            rollout.finish(reward=reward)
        rollout.finish(reward=1.0)
    assert rollout.trajectory().reward == 1.0


def test_metadata_that_json_cannot_hold_is_refused_by_kind(client: Client) -> None:
    with client.rollout() as rollout, pytest.raises(CallerError, match="A set cannot be sent"):
        rollout.finish(metadata={"seen": {1}})  # type: ignore[dict-item]


def test_leaving_the_block_closes_the_rollout_unscored(client: Client) -> None:
    with client.rollout() as rollout:
        pass
    found = rollout.trajectory()
    assert (found.status, found.reward) == ("completed", None)


def test_an_error_in_the_block_closes_the_rollout_as_failed_and_is_raised(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), client.rollout() as rollout:
        raise ZeroDivisionError
    assert rollout.trajectory().status == "failed"


def test_the_agent_is_told_where_each_dialect_is(client: Client) -> None:
    rollout = client.rollout("named")
    base = f"{client.url}/r/named"
    assert (rollout.base_url, rollout.openai_base_url, rollout.anthropic_base_url) == (base, f"{base}/v1", base)
    rollout.finish()
    assert client.rollout("named").attempt == 2


def test_what_the_server_refuses_is_raised_with_its_code(client: Client) -> None:
    rollout = client.rollout()
    with pytest.raises(CallerError, match="is open") as refused:
        client.rollout(rollout.rollout_id)
    assert (refused.value.code, refused.value.status) == ("rollout_open", 409)
    with pytest.raises(CallerError) as missing:
        client.trajectory("nobody")
    assert missing.value.status == 404
    rollout.finish()
    with pytest.raises(CallerError) as closed:
        rollout.finish()
    assert closed.value.code == "rollout_closed"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("127.0.0.1:7000", "such as http://127.0.0.1:7000"),
        ("localhost:7000", "such as http://127.0.0.1:7000"),
        ("", "such as http://127.0.0.1:7000"),
        ("http://127.0.0.1:7000/v1", "Give the server's own: http://127.0.0.1:7000."),
        ("http://127.0.0.1:7000/r/mine/v1/", "Give the server's own: http://127.0.0.1:7000."),
        ("http://127.0.0.1:7000/r/mine", "Give the server's own: http://127.0.0.1:7000."),
    ],
)
def test_an_address_that_is_not_the_servers_is_refused_at_once(url: str, told: str) -> None:
    with pytest.raises(CallerError) as refused:
        Client(url)
    assert refused.value.code == "server_address"
    assert told in str(refused.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:7000/", "https://a.example/turnstile/"])
def test_a_servers_address_may_have_a_path_of_its_own(url: str) -> None:
    with Client(url) as client:
        assert client.url == url.rstrip("/")


def test_where_nothing_answers_the_address_is_named() -> None:
    with (
        Client("http://127.0.0.1:9", timeout_s=5) as client,
        pytest.raises(TurnstileError, match=r"127\.0\.0\.1:9") as error,
    ):
        client.rollout()
    assert error.value.code == "server_unreachable"


def test_an_answer_of_something_else_than_turnstile_is_an_error_with_its_words() -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(502, "Bad gateway")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        with Client(f"http://127.0.0.1:{server.server_port}") as client, pytest.raises(EngineError) as error:
            client.rollout()
        thread.join()
    assert error.value.status == 502


def test_the_operators_key_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str | None] = []

    class Ear(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent.append(self.headers["authorization"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    monkeypatch.setenv("TURNSTILE_ADMIN_KEY", "secret")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HTTPServer(("127.0.0.1", 0), Ear) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        with Client(f"http://127.0.0.1:{server.server_port}/") as client:
            client.get("/rollouts", limit="1")
        thread.join()
    assert sent == ["Bearer secret"]


def test_weights_are_announced_held_for_and_released(client: Client) -> None:
    client.announce_policy(3, label="step-3")
    (named,) = client.policy().engines
    held = client.hold_policy(deadline_s=60, engine=named.engine).engines[0]
    released = client.release_policy(engine=named.engine).engines[0]
    assert (held.version, held.label, held.held_until is None, released.held_until) == (3, "step-3", False, None)
    assert client.policy().labels["step-3"] == 3
    with pytest.raises(CallerError) as refused:
        client.announce_policy(4, engine="nowhere:1")
    assert refused.value.code == "engine_unknown"
