"""An agent is told of a failure what it needs, and never a place: no address, path, traceback or foreign id."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from turnstile.store.schema import JOURNAL_FILE

ADMIN = "an-operators-own-key"
GOOD = {"model": "m", "messages": [{"role": "user", "content": "go"}]}


@pytest.fixture(scope="module")
def room(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    """One of its own: its engine and its store are broken."""
    with wire_up(tools_folder, ["<|im_end|>"], admin_key=ADMIN) as room:
        yield room


def places(room: Any) -> list[str]:
    """What would help somebody who wants to go past Turnstile."""
    return [f":{room.fake.port}", str(room.store), "Traceback", "/site-packages/", ".py", JOURNAL_FILE]


@pytest.mark.parametrize("dialect", ["openai.chat", "openai.responses", "anthropic.messages", "google.gemini"])
@pytest.mark.parametrize("stream", [False, True])
def test_of_an_engine_that_is_down_an_agent_is_told_no_address_and_the_journal_has_it(
    room: Any, speaking: Any, dialect: str, stream: bool
) -> None:
    talker = speaking.Talker(room, speaking.SPEAKERS[dialect], room.agent())
    with room.engine_down():
        told = talker.send(talker.speaker.body("go", stream=stream), stream)
    assert told.status == 503
    assert talker.speaker.is_refusal(told.body)
    text = told.body.decode() + str(told.headers)
    assert "The engine cannot be reached" in text
    assert [place for place in places(room) if place in text] == []
    failed = [state.failed for state in talker.calls if state.failed is not None]
    assert [f":{room.fake.port}" in each.problem for each in failed] == [True]


@pytest.mark.parametrize("dialect", ["openai.chat", "openai.responses", "anthropic.messages", "google.gemini"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_refuses_turnstiles_key_is_not_told_as_if_the_agents_were_wrong(
    room: Any, speaking: Any, dialect: str, stream: bool
) -> None:
    # An engine that was seen to refuse is down until it is looked at again.
    deadline = time.monotonic() + 60
    while room.agent().say("hi").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    talker = speaking.Talker(room, speaking.SPEAKERS[dialect], room.agent())
    room.fake.api_key = "changed"
    try:
        told = talker.send(talker.speaker.body("go", stream=stream), stream)
    finally:
        room.fake.api_key = ""
    assert (told.status, talker.speaker.is_refusal(told.body)) == (502, True)
    text = told.body.decode() + str(told.headers)
    assert "The engine refused Turnstile's own key" in text
    assert [word for word in (*places(room), "authentication", "UNAUTHENTICATED", "401") if word in text] == []
    (failed,) = [state.failed for state in talker.calls if state.failed is not None]
    assert "refused the key that Turnstile sent, or asks for one, with status 401" in failed.problem


@pytest.mark.parametrize(
    "fault", ["ERROR_500", "HTML", "NOT_JSON", "MISSING_FIELD", "FOREIGN_ID", "HALF_BODY", "ERROR_BODY"]
)
def test_of_an_engine_that_fails_an_agent_is_told_nothing_that_the_engine_said(
    room: Any, fakes: Any, fault: str
) -> None:
    agent = room.agent()
    room.fake.faults.append(fakes.Fault[fault])
    told = agent.say("go")
    assert told.status >= 500
    assert [place for place in (*places(room), "fell over", "<html", "llama.cpp") if place in told.body.decode()] == []


def test_a_failure_of_the_store_is_told_without_its_path_but_to_operators(room: Any) -> None:
    agent = room.agent()
    own, operators = ({"authorization": f"Bearer {key}"} for key in (agent.handle.agent_key, ADMIN))
    agent.handle.finish(reward=1.0)
    with closing(sqlite3.connect(room.store / JOURNAL_FILE)) as journal, journal:
        journal.execute("UPDATE records SET body = x'00' WHERE rollout_id = ?", (agent.handle.rollout_id,))
    for path in (agent.path, f"{room.client.url}/r/{agent.handle.rollout_id}/v1/messages/count_tokens"):
        told = room.http.post(path, json=GOOD, headers=own)
        assert (told.status_code, "cannot keep or read records" in told.text) == (503, True)
        assert [place for place in places(room) if place in told.text] == []
    told = room.http.get(f"{room.client.url}/rollouts/{agent.handle.rollout_id}", headers=operators)
    assert (told.status_code, str(room.store) in told.text) == (503, True)


def test_liveness_tells_a_stranger_and_an_agent_one_word_and_a_keyholder_why(room: Any) -> None:
    agent = room.agent()
    url = f"{room.client.url}/healthz"
    with room.engine_down():
        for headers in ({}, {"authorization": f"Bearer {agent.handle.agent_key}"}):
            told = room.http.get(url, headers=headers)
            assert (told.status_code, told.json()) == (503, {"status": "degraded"})
        told = room.http.get(url, headers={"authorization": f"Bearer {ADMIN}"})
        assert (told.status_code, f":{room.fake.port}" in json.dumps(told.json()["reasons"])) == (503, True)


def test_no_error_names_a_rollout_that_the_agent_did_not_name(room: Any) -> None:
    agent, other = room.agent(rollout_id="mine"), room.agent(rollout_id="somebody-elses")
    own = {"authorization": f"Bearer {agent.handle.agent_key}"}
    for method, path in (
        ("POST", "/r/mine/v1/chat/completions"), ("POST", "/r/mine/v1/responses"), ("GET", "/r/mine/v1/models/x"),
        ("GET", "/r/mine/nothing"), ("POST", "/r/mine/v1/embeddings"), ("GET", "/rollouts"),
    ):  # fmt: skip
        answer = room.http.request(
            method, room.client.url + path, headers=own, content=b"{" if method == "POST" else b""
        )
        assert answer.status_code >= 400
        assert other.handle.rollout_id not in answer.text + str(answer.headers)
