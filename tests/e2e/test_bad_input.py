"""Bad requests and bad engines: an error in the dialect's shape, a reason in the journal, and a rollout as before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

GOOD = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
BODY_LIMIT = 32 * 1024 * 1024
ADMIN = "operator-key"
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def changed(**fields: Any) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


@contextmanager
def goes_on_afterwards(agent: Any, room: Any) -> Iterator[None]:
    """What fails between two turns changes nothing for the second."""
    (answer_ids,) = room.script("One.<|im_end|>")
    first = agent.say("Hi")
    yield
    room.script("Two.<|im_end|>")
    second = agent.say("Hi", first.message, "Again")
    assert (first.text, second.text, second.history) == ("One.", "Two.", "spliced")
    assert second.prompt[: len(first.prompt) + len(answer_ids)] == first.prompt + answer_ids


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"", 400, "invalid_json", None),
        (b"not json", 400, "invalid_json", None),
        (b'{"model": "m", "messages": [', 400, "invalid_json", None),
        (b"\xff\xfe{}", 400, "invalid_json", None),
        (b"[" * 100_000 + b"]" * 100_000, 400, "invalid_value", None),
        (changed(extra=1)[:-1] + b', "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "invalid_json", None),
        (b"[]", 400, "invalid_value", None),
        (b"{}", 400, "missing_required_parameter", "model"),
        (changed(messages="hi"), 400, "invalid_value", "messages"),
        (changed(messages=[{"role": "user", "content": 7}]), 400, "invalid_value", "messages[0].content"),
        (changed(temperature="hot"), 400, "invalid_value", "temperature"),
        (changed(max_tokens=-1), 400, "invalid_value", "max_tokens"),
        (changed(model="gpt-9"), 404, "model_not_found", "model"),
        (changed(messages=[{"role": "user", "content": "go " * 5000}]), 400, "context_length_exceeded", None),
        (changed(messages=[{"role": "user", "content": [IMAGE]}]), 400, "images_not_supported", "messages[0]"),
    ],
    ids=[
        "empty", "not JSON", "JSON that ends too early", "not UTF-8", "deep JSON", "deep JSON in an unknown field",
        "a list", "nothing said", "messages are a text", "content is a number", "temperature is a text",
        "negative limit", "unknown model", "too long for the context", "an image",
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_request_is_refused_by_field_and_the_rollout_is_as_before(
    wired: Callable[..., Any], body: bytes, status: int, code: str, param: str | None, stream: bool
) -> None:
    room = wired()
    agent = room.agent()
    if stream and body.startswith(b'{"model": "m"') and body.endswith(b"}"):
        body = body[:-1] + b', "stream": true}'
    with goes_on_afterwards(agent, room):
        refused = agent.post(body)
    assert refused.headers["content-type"] == "application/json"
    error = refused.error
    assert (refused.status, error["code"], error["type"]) == (status, code, "invalid_request_error")
    if param:
        assert error["param"] == param
    assert error["message"].endswith(".")
    assert sum(agent.summary["failed_calls"].values()) == 1


def test_a_body_over_the_limit_is_refused_before_it_is_read(wired: Callable[..., Any]) -> None:
    room = wired()
    agent = room.agent()
    with goes_on_afterwards(agent, room):
        refused = agent.post(b" " * 2 * BODY_LIMIT)
    assert (refused.status, refused.error["code"]) == (413, "body_too_large")
    assert agent.summary["failed_calls"] == {"refused": 1}


def test_a_body_over_the_limit_that_does_not_say_so_is_refused(wired: Callable[..., Any]) -> None:
    room = wired()
    agent = room.agent()
    with goes_on_afterwards(agent, room):
        answer = room.http.post(agent.path, content=(b" " * 2**20 for _ in range(33)))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("fault", "status", "code", "reason"),
    [
        ("ERROR_500", 500, "engine_refused", "engine_refused"),
        ("LOADING_503", 503, "engine_refused", "engine_refused"),
        ("RESET", 502, "engine_unreachable", "engine_unreachable"),
        ("HALF_BODY", 502, "engine_unreachable", "engine_unreachable"),
        ("NOT_JSON", 502, "engine_broken", "engine_broken"),
        ("HTML", 502, "engine_broken", "engine_broken"),
        ("MISSING_FIELD", 502, "engine_broken", "engine_broken"),
        ("FOREIGN_ID", 502, "engine_broken", "engine_broken"),
        ("PROBABILITY_ABOVE_ONE", 502, "engine_broken", "engine_broken"),
        ("WRONG_PROMPT_LENGTH", 502, "echo_mismatch", "echo_mismatch"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_engine_is_a_server_error_with_its_reason_in_the_journal(
    wired: Callable[..., Any], fakes: Any, fault: str, status: int, code: str, reason: str, stream: bool
) -> None:
    room = wired()
    agent = room.agent()
    with goes_on_afterwards(agent, room):
        # A connection that had served before is tried once more when it breaks, so two resets are needed.
        room.fake.faults.extend([fakes.Fault[fault]] * (2 if fault == "RESET" else 1))
        broken = agent.say("other", stream=stream)
        room.fake.faults.clear()
    error = broken.error
    assert (broken.status, error["code"], error["type"]) == (status, code, "server_error")
    assert error["message"].endswith(".")
    assert agent.summary["failed_calls"] == {reason: 1}


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_breaks_in_mid_answer_never_ends_an_answer_cleanly(
    wired: Callable[..., Any], fakes: Any, wires: Any, stream: bool
) -> None:
    room = wired()
    agent = room.agent()
    with goes_on_afterwards(agent, room):
        (counted,) = room.script("one two three four five six seven<|im_end|>")
        room.fake.faults.extend([fakes.Fault.SLOW, fakes.Fault.NOT_JSON])
        broken = agent.say("count", stream=stream)
    assert broken.error["code"] == "engine_broken"
    assert broken.status == (200 if stream else 502)
    assert not stream or (broken.text.startswith("one") and not broken.ended)
    assert agent.summary["failed_calls"] == {"engine_broken": 1}
    (failed,) = [state.failed for state in room.forest(agent).calls.values() if state.failed]
    partial = failed.partial_S.tolist()
    assert 0 < len(partial) < len(counted)
    assert partial == counted[: len(partial)]


def test_an_engine_that_is_down_is_named_and_the_rollout_goes_on_when_it_is_back(
    wire_up: Callable[..., Any], tools_folder: Any, fakes: Any
) -> None:
    with wire_up(tools_folder, ["<|im_end|>"]) as room:
        agent = room.agent()
        with goes_on_afterwards(agent, room), room.engine_down():
            refused = agent.say("Hi", "again")
            health = room.http.get(f"{room.client.url}/healthz")
        assert (refused.status, refused.error["code"]) == (503, "engine_unreachable")
        assert (health.status_code, health.json()["status"]) == (503, "degraded")
        assert agent.summary["failed_calls"] == {"engine_unreachable": 1}


@pytest.fixture(scope="module")
def keyed(wire_up: Callable[..., Any], tools_folder: Any) -> Iterator[Any]:
    with wire_up(tools_folder, ["<|im_end|>"], admin_key=ADMIN) as room:
        yield room


def test_with_keys_an_unknown_rollout_and_a_wrong_key_get_the_same_answer(keyed: Any) -> None:
    agent, other = keyed.agent(), keyed.agent()
    url = keyed.client.url
    keys = {
        "none": {},
        "empty": {"authorization": "Bearer"},
        "another's": bearer(other.handle.agent_key),
        "operator's": bearer(ADMIN),
    }
    for known in (agent.path, f"{url}/r/nobody/v1/chat/completions"):
        for headers in keys.values():
            answer = keyed.http.post(known, json=GOOD, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
            assert answer.json()["error"]["message"].startswith("The key does not open this rollout")
    with goes_on_afterwards(agent, keyed):
        pass
    assert agent.summary["failed_calls"] == {}


def test_with_keys_an_agent_may_not_do_what_operators_do(keyed: Any) -> None:
    agent = keyed.agent()
    own = bearer(agent.handle.agent_key)
    rollout = f"/rollouts/{agent.handle.rollout_id}"
    url = keyed.client.url
    for method, path in [
        ("POST", "/rollouts"), ("GET", "/rollouts"), ("GET", rollout), ("GET", f"{rollout}/trajectory"),
        ("GET", f"{rollout}/drift"), ("POST", f"{rollout}/finish"), ("POST", "/policy"), ("GET", "/metrics"),
    ]:  # fmt: skip
        for headers in (own, {}, {"authorization": "Bearer"}):
            answer = keyed.http.request(method, url + path, headers=headers, json={} if method == "POST" else None)
            assert (path, answer.status_code, answer.json()["error"]["code"]) == (path, 401, "unauthorized")
            assert agent.handle.agent_key not in answer.text
    assert keyed.http.get(f"{url}/healthz").status_code == 200


def test_a_key_alone_names_its_rollout_on_the_plain_paths(keyed: Any) -> None:
    agent = keyed.agent()
    keyed.script("A<|im_end|>")
    answer = keyed.http.post(
        f"{keyed.client.url}/v1/chat/completions", json=GOOD, headers=bearer(agent.handle.agent_key)
    )
    assert answer.headers["x-turnstile-rollout"] == agent.handle.rollout_id
    nobody = keyed.http.post(f"{keyed.client.url}/v1/chat/completions", json=GOOD)
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (401, "rollout_not_named")


def test_a_closed_rollout_refuses_its_agent_and_remembers_that(wired: Callable[..., Any]) -> None:
    room = wired()
    agent = room.agent()
    room.script("A<|im_end|>")
    agent.say("Hi")
    agent.handle.finish(reward=1.0)
    late = agent.say("Hi", "more")
    assert (late.status, late.error["code"], late.prompts) == (409, "rollout_closed", 0)
    assert len(room.forest(agent).rejected) == 1


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
