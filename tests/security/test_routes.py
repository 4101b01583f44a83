"""What each key opens, on every route that the application has, so that none can be forgotten.

Public case M3, and what an agent tries that wants to be another one or an operator.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.routing import Route

from turnstile.config import Settings
from turnstile.protocols import COUNTERS, DIALECTS
from turnstile.server.app import build_app
from turnstile.server.dialects import route_of

ADMIN, READ = "an-operators-own-key", "a-readers-only-key"
AGENTS = {
    f"{base}{path}"
    for base in ("/r/{rollout_id}", "")
    for path in (
        *(route_of(path) for each in (*DIALECTS, *COUNTERS) for path in each.paths),
        *(f"/{version}/models{name}" for version in ("v1", "v1beta") for name in ("", "/{model:path}")),
    )
}
"""Routes that an agent's key opens, of its own rollout; all others but those for everybody are operators'."""
EVERYBODY = {"/healthz", "/livez"}


def _routes() -> list[tuple[str, str]]:
    unused = cast("Any", Mock())
    built = build_app(unused, unused, unused, unused, Settings(engine="embedded", store=Path(), admin_key=ADMIN))
    found = [each for each in built.routes if isinstance(each, Route)]
    assert len(found) == len(built.routes), "a route of another kind has to be looked at here"
    return [(method, each.path) for each in found for method in sorted(each.methods or {"POST"})]


ROUTES = _routes()
OPERATORS = [(method, path) for method, path in ROUTES if path not in AGENTS | EVERYBODY]
GOOD = {"model": "m", "messages": [{"role": "user", "content": "go"}]}


def ask(room: Any, method: str, path: str, rollout: str, **sent: Any) -> httpx.Response:
    """A request to a route with its blanks filled in."""
    filled = path.replace("{model:path}", "m").replace("{model}", "m").replace("{sha256}", "0" * 64)
    filled = filled.replace("{rollout_id}", rollout)
    assert "{" not in filled, "a blank that nobody fills in here"
    body = {"json": {}} if method in ("POST", "PUT", "PATCH") else {}
    return room.http.request(method, room.client.url + filled, **{**body, **sent})


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}".rstrip()}


def everywhere(key: str) -> list[dict[str, Any]]:
    """A key in every place where a client of some dialect puts it."""
    return [
        {"headers": bearer(key)}, {"headers": {"x-api-key": key}}, {"headers": {"x-goog-api-key": key}},
        {"params": {"key": key}}, {"headers": {"cookie": f"key={key}; authorization=Bearer {key}"}},
        {"headers": {"proxy-authorization": f"Bearer {key}"}}, {"auth": ("", key)}, {"params": {"api_key": key}},
    ]  # fmt: skip


def is_refused(answer: httpx.Response) -> bool:
    return answer.status_code == 401 and json.loads(answer.content or b'{"error":{}}') != {}


def test_the_routes_of_agents_are_all_there() -> None:
    assert {path for _, path in ROUTES} >= AGENTS
    assert len(OPERATORS) >= 10


@pytest.mark.parametrize(("method", "path"), OPERATORS)
def test_case_m3_an_agents_key_opens_no_route_of_operators(guarded: Any, method: str, path: str) -> None:
    agent = guarded.agent()
    key = agent.handle.agent_key
    for sent in (*everywhere(key), {}, {"headers": bearer("")}):
        answer = ask(guarded, method, path, agent.handle.rollout_id, **sent)
        assert is_refused(answer), sent
        assert key not in answer.text + str(answer.headers)
    assert (agent.summary["status"], agent.summary["attempt"]) == ("running", 1)


@pytest.mark.parametrize(("method", "path"), OPERATORS)
def test_a_readers_key_opens_what_is_read_and_nothing_that_changes(guarded: Any, method: str, path: str) -> None:
    agent = guarded.agent()
    answer = ask(guarded, method, path, agent.handle.rollout_id, headers=bearer(READ))
    assert (answer.status_code == 401) is (method not in ("GET", "HEAD"))
    assert (agent.summary["status"], agent.summary["attempt"]) == ("running", 1)


@pytest.mark.parametrize(("method", "path"), OPERATORS)
def test_an_operators_key_in_an_address_or_a_cookie_opens_nothing(guarded: Any, method: str, path: str) -> None:
    agent = guarded.agent()
    for sent in everywhere(ADMIN)[3:]:
        assert is_refused(ask(guarded, method, path, agent.handle.rollout_id, **sent)), sent


@pytest.mark.parametrize(("method", "path"), [each for each in ROUTES if each[1] in AGENTS])
def test_case_m3_only_a_rollouts_own_key_opens_its_model_wherever_it_stands(
    guarded: Any, method: str, path: str
) -> None:
    agent, other = guarded.agent(), guarded.agent()
    mine = agent.handle.rollout_id
    stolen = other.handle.agent_key.replace(f"ts_{other.handle.rollout_id}_", f"ts_{mine}_")
    wrong = [stolen, ADMIN, READ, "", "ts_", f"ts_{mine}_", f"ts_{mine}_{'0' * 32}", agent.handle.agent_key[:-1]]
    if "rollout_id" in path:
        wrong.append(other.handle.agent_key)
    for key in wrong:
        for sent in everywhere(key)[:4]:
            answer = ask(guarded, method, path, mine, **sent)
            assert is_refused(answer), sent
            assert answer.headers.get("x-turnstile-call") is None
            assert key in ("", "ts_") or key not in answer.text
    for sent in everywhere(agent.handle.agent_key)[4:]:
        assert is_refused(ask(guarded, method, path, mine, **sent)), sent
    assert (agent.summary["calls"], agent.summary["failed_calls"]) == (0, {})
    for sent in everywhere(agent.handle.agent_key)[:4]:
        assert ask(guarded, method, path, mine, **sent).status_code in (200, 400, 404)


@pytest.mark.parametrize(("method", "path"), [each for each in ROUTES if each[1] in AGENTS])
def test_a_finished_rollouts_key_opens_nothing_any_more(guarded: Any, method: str, path: str) -> None:
    agent = guarded.agent()
    own = bearer(agent.handle.agent_key)
    agent.handle.finish(reward=1.0)
    answer = ask(guarded, method, path, agent.handle.rollout_id, headers=own)
    if method == "POST":
        # The body is read first: a straggler is recorded as what it was.
        assert answer.status_code in (400, 409)
    else:
        assert answer.status_code == 409
    assert guarded.fake.requests == [] or "x-turnstile-call" not in answer.headers


def test_a_finished_rollouts_key_samples_nothing_and_the_straggler_is_recorded(guarded: Any) -> None:
    agent = guarded.agent()
    agent.handle.finish(reward=1.0)
    late = agent.say("go")
    assert (late.status, late.error["code"], late.prompts) == (409, "rollout_closed", 0)
    assert len(guarded.forest(agent).rejected) == 1


@pytest.mark.parametrize(("method", "path"), [each for each in ROUTES if each[1] in AGENTS])
def test_the_key_of_an_earlier_attempt_opens_nothing_of_the_next(guarded: Any, method: str, path: str) -> None:
    first = guarded.agent()
    name = first.handle.rollout_id
    first.handle.finish(reward=0.0)
    second = guarded.agent(rollout_id=name)
    assert first.handle.agent_key != second.handle.agent_key
    for sent in everywhere(first.handle.agent_key)[:4]:
        assert is_refused(ask(guarded, method, path, name, **sent))
    assert (second.summary["attempt"], second.summary["calls"]) == (2, 0)


def test_case_m3_a_wrong_key_is_answered_alike_whether_the_rollout_exists_or_not(guarded: Any) -> None:
    closed, running = guarded.agent(), guarded.agent()
    closed.handle.finish(reward=1.0)
    names = (closed.handle.rollout_id, running.handle.rollout_id, "never-there", "x" * 128)
    answers = [
        ask(guarded, "POST", "/r/{rollout_id}/v1/chat/completions", name, headers=bearer("wrong"), json=GOOD)
        for name in names
    ]
    assert {(each.status_code, each.text) for each in answers} == {(401, answers[0].text)}


PATHS = [
    "/r/{}/../{}/v1/chat/completions", "/r/{}%2f..%2f{}/v1/chat/completions", "/r/{}/v1/../../../rollouts",
    "/r/{}/v1/chat/completions/../../../../../rollouts", "/r/{}%00/v1/chat/completions",
    "/r/./{}/v1/chat/completions", "/r//{}/v1/chat/completions", "//rollouts", "/rollouts/", "/rollouts/.",
    "/rollouts/{}/trajectory/", "/rollouts/..%2frollouts", "/r/{}/..;/rollouts", "/r/{}/v1/chat/completions%0d%0ax:y",
    "/r/%2e%2e/rollouts", "/r/..%c0%af..%c0%afrollouts", "/ROLLOUTS", "/Rollouts/{}",
    "/r/{}/v1/chat/completions;/rollouts",
    "/metrics/", "/metrics%00", "/%6detrics", "/%72ollouts", "/r/{}%20/v1/chat/completions", "/r/{}\u0661/v1/models",
    "/r/{}%EF%BC%8F/v1/models", "/r/.../v1/models", "/r/-x/v1/models", "/r/_/v1/models",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_trick_in_a_path_leads_an_agent_to_more_than_its_own_model(guarded: Any, method: str, path: str) -> None:
    agent, other = guarded.agent(), guarded.agent()
    filled = path.format(agent.handle.rollout_id, other.handle.rollout_id)
    # The bytes as they stand: a client that tidies a path up is no attacker.
    answer = raw(guarded, method, filled, agent.handle.agent_key)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 401", b"HTTP/1.1 404", b"HTTP/1.1 405")), answer
    assert other.handle.rollout_id.encode() not in answer or other.handle.rollout_id in filled
    assert (other.summary["calls"], other.summary["failed_calls"]) == (0, {})


def test_an_encoded_slash_is_a_slash_and_the_key_is_checked_behind_it(guarded: Any) -> None:
    agent, other = guarded.agent(), guarded.agent()
    target = f"/r/{agent.handle.rollout_id}%2fv1%2fchat/completions"
    assert raw(guarded, "POST", target, other.handle.agent_key).startswith(b"HTTP/1.1 401")
    guarded.script("A<|im_end|>")
    assert raw(guarded, "POST", target, agent.handle.agent_key).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("value", ["Bearer ", "Bearer", "bearer \t", "Bearer  ", "", " ", "Basic Og==", "Bearer ,"])
def test_case_m3_an_empty_key_opens_nothing(guarded: Any, value: str) -> None:
    for target in ("/rollouts", "/metrics", "/policy"):
        head = f"GET {target} HTTP/1.1\r\nhost: localhost\r\nauthorization: {value}\r\nconnection: close\r\n\r\n"
        assert exchanged(guarded.client.url, head.encode()).startswith(b"HTTP/1.1 401")


def raw(room: Any, method: str, target: str, key: str) -> bytes:
    """One request on a bare socket; the whole answer."""
    body = json.dumps(GOOD).encode()
    head = (
        f"{method} {target} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return exchanged(room.client.url, head.encode() + body)


def exchanged(url: str, sent: bytes) -> bytes:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as line:
        line.sendall(sent)
        heard = b""
        while piece := line.recv(65536):
            heard += piece
    return heard


@pytest.mark.parametrize(
    "name",
    [
        "../x", "a/b", "a%2fb", "a\x00b", "a b", "a\nb", "\uff41", "a\u202eb", "", ".", "-a", "a" * 129, "a?b", "a#b",
        "a\\b", "ä", "\ud800",
    ],
)  # fmt: skip
def test_no_rollout_is_opened_under_a_name_that_could_mislead(guarded: Any, name: str) -> None:
    answer = guarded.http.post(
        f"{guarded.client.url}/rollouts", content=json.dumps({"rollout_id": name}), headers=bearer(ADMIN)
    )
    assert answer.status_code in (201, 400)
    if answer.status_code == 201:
        # An empty name is none: a fresh one was made.
        assert name == ""


def test_names_that_differ_in_case_are_two_rollouts_with_keys_of_their_own(guarded: Any) -> None:
    lower, upper = guarded.agent(rollout_id="case-of-names"), guarded.agent(rollout_id="CASE-OF-NAMES")
    crossed = ask(guarded, "GET", "/r/{rollout_id}/v1/models", "CASE-OF-NAMES", headers=bearer(lower.handle.agent_key))
    assert is_refused(crossed)
    assert upper.summary["calls"] == 0
