"""How many calls run, wait and are refused, over HTTP, in every dialect."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from google import genai

from turnstile.protocols import DIALECTS

DIALECT = pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
STREAMS = pytest.mark.parametrize("stream", [False, True])
BUSY_S = 60.0


@pytest.fixture(scope="module")
def room(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    """A server with one place and one seat to wait on, where nobody waits in vain for a test to end."""
    changes = {"max_calls": 1, "max_waiting": 1, "queue_s": BUSY_S, "keep_alive_s": 0.05, "grace_s": 0.2}
    with wire_up(tools_folder, ["<|im_end|>"], **changes) as room:
        yield room
        assert figures(room) == (0, 0)


@pytest.fixture(scope="module")
def strict(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    """The same, where nobody may wait."""
    with wire_up(tools_folder, ["<|im_end|>"], max_calls=1, max_waiting=0, grace_s=0.2) as room:
        yield room


def figures(room: Any) -> tuple[int, int]:
    text = room.client.get("/metrics").decode()
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return int(float(lines["turnstile_running_calls"])), int(float(lines["turnstile_waiting_calls"]))


def answer_a(room: Any) -> None:
    room.fake.answer = lambda _: room.ids("A<|im_end|>")


@contextmanager
def one_running(room: Any, wires: Any) -> Iterator[Any]:
    """A call of some other rollout has the only place until the block is left."""
    answer_a(room)
    room.fake.held = True
    other = room.agent()
    with ThreadPoolExecutor(1) as hand:
        running = hand.submit(other.say, "other")
        try:
            wires.eventually(lambda: figures(room)[0] == 1 and room.fake.requests)
            yield other
        finally:
            room.fake.held = False
            assert running.result().status == 200
    wires.eventually(lambda: figures(room) == (0, 0))


@DIALECT
@STREAMS
def test_a_call_beyond_the_places_waits_silently_and_is_answered(
    room: Any, wires: Any, speaking: Any, dialect: str, stream: bool
) -> None:
    it = speaking.Talker(room, speaking.SPEAKERS[dialect], room.agent())
    with ThreadPoolExecutor(1) as hand:
        with one_running(room, wires):
            waiting = hand.submit(it.send, it.speaker.body("go", stream=stream), stream)
            wires.eventually(lambda: figures(room) == (1, 1))
        told = waiting.result()
    assert told.status == 200
    assert it.speaker.heard(told.body, stream).text == "A"


@DIALECT
@STREAMS
def test_a_call_that_finds_the_queue_full_is_refused_in_shape_with_a_time_to_come_again(
    strict: Any, wires: Any, speaking: Any, dialect: str, stream: bool
) -> None:
    agent = strict.agent()
    speaker = speaking.SPEAKERS[dialect]
    with one_running(strict, wires):
        url, headers = speaker.url(agent.handle, stream), {"authorization": f"Bearer {agent.handle.agent_key}"}
        refused = strict.http.post(url, content=speaker.body("go", stream=stream), headers=headers)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert refused.headers["content-type"] == "application/json"
    assert speaker.is_refusal(refused.content)
    assert "1 calls run and 0 wait" in refused.text
    forest = strict.forest(agent)
    assert (len(forest.calls), [failed.reason for failed in forest.refused]) == (0, ["overloaded"])


def test_a_waiting_stream_is_sent_nothing_before_it_has_a_place(room: Any, wires: Any) -> None:
    agent = room.agent()
    with one_running(room, wires), agent.calling(agent.body("go", stream=True)) as line:
        wires.eventually(lambda: figures(room) == (1, 1))
        # Many times as long as the silence after which a running call's client gets a sign of life.
        line.settimeout(0.5)
        with pytest.raises(TimeoutError):
            line.recv(1)


def test_a_client_that_hangs_up_leaves_the_queue(room: Any, wires: Any) -> None:
    gone, next_one = room.agent(), room.agent()
    with ThreadPoolExecutor(1) as hand:
        with one_running(room, wires):
            with gone.calling(gone.body("go")):
                wires.eventually(lambda: figures(room) == (1, 1))
            wires.eventually(lambda: figures(room) == (1, 0))
            waiting = hand.submit(next_one.say, "go")
            wires.eventually(lambda: figures(room) == (1, 1))
        assert waiting.result().status == 200
    assert [failed.reason for failed in room.forest(gone).refused] == ["client_gone"]


def test_a_retry_that_joins_a_call_takes_no_second_place(room: Any, wires: Any) -> None:
    answer_a(room)
    agent, key = room.agent(), {"idempotency-key": "k"}
    room.fake.held = True
    began = room.fake.begun
    with ThreadPoolExecutor(3) as hands:
        first = hands.submit(agent.say, "go", headers=key)
        wires.eventually(lambda: room.fake.begun > began)
        again = [hands.submit(agent.say, "go", headers=key) for _ in range(2)]
        wires.eventually(lambda: sum(len(each.joined) for each in room.forest(agent).calls.values()) == 2)
        assert figures(room) == (1, 0)
        room.fake.held = False
        assert [each.result().text for each in (first, *again)] == ["A", "A", "A"]
    assert len(room.forest(agent).calls) == 1


def test_a_call_whose_time_in_the_queue_ends_is_refused(
    wire_up: Callable[..., Any], tools_folder: Path, wires: Any
) -> None:
    with wire_up(tools_folder, ["<|im_end|>"], max_calls=1, queue_s=0.1) as room:
        agent = room.agent()
        with one_running(room, wires):
            refused = agent.say("go", stream=True)
    assert (refused.status, refused.error["code"]) == (503, "overloaded")
    assert refused.error["message"].startswith("No place came free within 0.1 s.")


def test_a_rollout_at_its_own_limit_keeps_no_other_waiting(
    wire_up: Callable[..., Any], tools_folder: Path, wires: Any
) -> None:
    limits = {"max_calls_per_rollout": 1, "queue_s": BUSY_S}
    with wire_up(tools_folder, ["<|im_end|>"], **limits) as room, ThreadPoolExecutor(2) as hands:
        with one_running(room, wires) as busy:
            waiting = hands.submit(busy.say, "more")
            wires.eventually(lambda: figures(room) == (1, 1))
            passing = hands.submit(room.agent().say, "go")
            wires.eventually(lambda: figures(room) == (2, 1))
        assert (passing.result().text, waiting.result().text) == ("A", "A")


def openai_says(agent: Any) -> str:
    with openai.OpenAI(base_url=agent.handle.openai_base_url, api_key=agent.handle.agent_key) as client:
        answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "go"}])
    return answer.choices[0].message.content or ""


def anthropic_says(agent: Any) -> str:
    with anthropic.Anthropic(base_url=agent.handle.anthropic_base_url, api_key=agent.handle.agent_key) as client:
        answer = client.messages.create(model="m", max_tokens=8, messages=[{"role": "user", "content": "go"}])
    return "".join(block.text for block in answer.content if block.type == "text")


@pytest.mark.parametrize("says", [openai_says, anthropic_says])
def test_the_official_clients_come_again_by_themselves_when_they_are_told_to(
    strict: Any, wires: Any, says: Callable[[Any], str]
) -> None:
    agent = strict.agent()
    with ThreadPoolExecutor(1) as hand:
        with one_running(strict, wires):
            began = time.monotonic()
            saying = hand.submit(says, agent)
            wires.eventually(lambda: strict.forest(agent).refused)
        assert saying.result() == "A"
    # By themselves they would have tried twice within 3 s.
    assert time.monotonic() - began > 4.9
    assert [failed.reason for failed in strict.forest(agent).refused] == ["overloaded"]


def test_googles_client_shows_an_overload_as_a_server_error(strict: Any, wires: Any) -> None:
    agent = strict.agent()
    with one_running(strict, wires):
        options = {"base_url": agent.handle.anthropic_base_url}
        client = genai.Client(api_key=agent.handle.agent_key, http_options=options)
        with pytest.raises(genai.errors.ServerError) as refused:
            client.models.generate_content(model="m", contents="go")
    assert (refused.value.code, refused.value.status) == (503, "UNAVAILABLE")


@DIALECT
def test_more_messages_or_tools_than_may_be_are_refused_in_shape(
    wire_up: Callable[..., Any], tools_folder: Path, speaking: Any, dialect: str
) -> None:
    speaker = speaking.SPEAKERS[dialect]
    with wire_up(tools_folder, ["<|im_end|>"], max_messages=2, max_tools=0) as room:
        it = speaking.Talker(room, speaker, room.agent())
        many = it.send(speaker.body("a", "b", "c"), False)
        tooled = it.send(speaker.body("a"), False)
    assert (many.status, tooled.status) == (400, 400)
    assert speaker.is_refusal(many.body) and speaker.is_refusal(tooled.body)
    assert b"3 messages, and 2 is the most" in many.body
    assert b"1 tools, and 0 is the most" in tooled.body


def test_a_refusal_that_cannot_be_recorded_is_told_as_the_journals_trouble(room: Any) -> None:
    agent = room.agent()
    with closing(sqlite3.connect(room.store / "journal.sqlite3", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        unrecorded = agent.post(b"{")
    recorded = agent.post(b"{")
    assert (unrecorded.status, unrecorded.error["code"], unrecorded.headers["retry-after"]) == (503, "store_error", "1")
    assert recorded.status == 400
    assert [failed.status for failed in room.forest(agent).refused] == [400]


def test_below_the_reserve_no_rollout_begins_and_health_says_so(
    wire_up: Callable[..., Any], wires: Any, tools_folder: Path, tmp_path: Path
) -> None:
    with wire_up(tools_folder, ["<|im_end|>"], store=tmp_path, admin_key="k") as room:
        handle = room.client.rollout()
    with wire_up(tools_folder, ["<|im_end|>"], store=tmp_path, admin_key="k", disk_reserve_bytes=1 << 60) as room:
        answer_a(room)
        opened = httpx.post(f"{room.client.url}/rollouts", headers={"authorization": "Bearer k"}, trust_env=False)
        assert (opened.status_code, opened.headers["retry-after"]) == (503, "30")
        assert opened.json()["error"]["code"] == "disk_low"
        url = f"{room.client.url}/r/{handle.rollout_id}/v1/chat/completions"
        going_on = room.http.post(
            url,
            json={"model": "m", "messages": [{"role": "user", "content": "go"}]},
            headers={"authorization": f"Bearer {handle.agent_key}"},
        )
        assert going_on.json()["choices"][0]["message"]["content"] == "A"
        health = json.loads(room.client.get("/healthz"))
    (trouble,) = wires.troubles(health)
    assert health["status"] == "degraded"
    assert trouble.startswith("The disk of the store is low: ")
    assert trouble.endswith(f" MiB are free, and {1 << 40} are reserved; no rollouts begin.")


def test_below_the_floor_no_call_begins_in_any_dialect_and_nothing_is_recorded(
    wire_up: Callable[..., Any], tools_folder: Path, tmp_path: Path, speaking: Any
) -> None:
    with wire_up(tools_folder, ["<|im_end|>"], store=tmp_path) as room:
        agent = room.agent()
        before = room.client.url
    with wire_up(tools_folder, ["<|im_end|>"], store=tmp_path, disk_floor_bytes=1 << 60) as room:
        for dialect in DIALECTS:
            speaker = speaking.SPEAKERS[dialect.name]
            url = speaker.url(agent.handle, False).replace(before, room.client.url)
            refused = room.http.post(url, content=speaker.body("go"))
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
            assert speaker.is_refusal(refused.content)
            assert "The store's disk is full" in refused.text
        assert room.forest(agent).refused == ()
        assert not room.fake.requests
