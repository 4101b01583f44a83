"""Public cases F, retries and clients that hang up, through the whole server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

FIRST_TRY = {"x-stainless-retry-count": "0"}
RETRIES = pytest.mark.parametrize(
    ("first", "again"),
    [
        (FIRST_TRY, {"x-stainless-retry-count": "1"}),
        ({"idempotency-key": "k"}, {"idempotency-key": "k"}),
        ({}, {}),
    ],
    ids=["retry count", "idempotency key", "unmarked"],
)
STREAMS = pytest.mark.parametrize("stream", [False, True])
CALL = '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call><|im_end|>'


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


def received(line: socket.socket) -> bytes:
    """A whole chunked answer."""
    heard = b""
    while not heard.endswith(b"\r\n0\r\n\r\n"):
        heard += line.recv(65536)
    return heard


def the_only_call(room: Any, agent: Any) -> Any:
    (state,) = room.forest(agent).calls.values()
    return state


@STREAMS
@RETRIES
def test_case_f1_the_engine_answered_and_the_client_never_heard_it(
    room: Any, wires: Any, first: dict[str, str], again: dict[str, str], stream: bool, tmp_path: Path
) -> None:
    agent = room.agent()
    asked = {"tools": [wires.tool("ls", p="string")], "stream": stream}
    call_ids, last_ids = room.script(CALL, "Found b.<|im_end|>")
    body = agent.body("go", **asked)
    room.fake.held, began = True, room.fake.begun
    with agent.calling(body, first):
        wires.eventually(lambda: room.fake.begun > began)
    room.fake.held = False
    wires.eventually(lambda: the_only_call(room, agent).undelivered)

    answered = agent.post(body, again)
    (call,) = answered.message["tool_calls"]
    second = agent.say("go", answered.message, wires.tool_result(call["id"], "b"), **asked)

    assert (answered.status, answered.prompts, answered.history) == (200, 0, "root")
    assert json.loads(call["function"]["arguments"]) == {"p": "/a"}
    assert second.history == "spliced"
    (turn, _) = room.forest(agent).calls.values()
    assert turn.committed.choices[0].message.calls[0].call_id == call["id"]
    assert [joined.how for joined in turn.joined] == ["replayed"]
    rollout = agent.exported(tmp_path)
    (sequence,) = rollout.sequences
    assert wires.sampled(sequence) == [call_ids, last_ids]
    assert (len(rollout.calls), rollout.token_counts.discarded, agent.summary["retries"]) == (2, {}, 1)


def test_case_f1_a_delivered_answer_is_given_again_to_a_marked_retry(room: Any) -> None:
    agent = room.agent()
    room.script("A<|im_end|>")
    first = agent.say("go", headers=FIRST_TRY)
    again = agent.say("go", headers={"x-stainless-retry-count": "1"})
    assert (again.body, again.call_id, again.prompts) == (first.body, first.call_id, 0)


def test_case_f1_a_retry_whose_answer_came_to_nothing_is_sampled_anew(room: Any, fakes: Any) -> None:
    agent = room.agent()
    room.fake.faults.append(fakes.Fault.ERROR_500)
    failed = agent.say("go", headers=FIRST_TRY)
    room.script("A<|im_end|>")
    again = agent.say("go", headers={"x-stainless-retry-count": "1"})
    assert (failed.status, again.status, again.text, again.prompts) == (500, 200, "A", 1)


@pytest.mark.parametrize("leaves", [False, True], ids=["first still connected", "first gone"])
def test_case_f2_a_retry_while_the_first_attempt_runs_waits_for_the_same_answer(
    room: Any, wires: Any, leaves: bool, tmp_path: Path
) -> None:
    agent = room.agent()
    (answer_ids,) = room.script("one two three four five<|im_end|>")
    body, key = agent.body("go", stream=True), {"idempotency-key": "k"}
    room.fake.held, began = True, room.fake.begun
    with ThreadPoolExecutor() as pool, agent.calling(body, key) as line:
        wires.eventually(lambda: room.fake.begun > began)
        if leaves:
            line.close()
        second = pool.submit(agent.post, body, key)
        wires.eventually(lambda: agent.summary["retries"] == 1)
        room.fake.held = False
        answered = second.result(wires.PATIENCE_S)
        heard = b"" if leaves else received(line)

    assert leaves or b" five" in heard
    assert (answered.status, answered.text, answered.ended) == (200, "one two three four five", True)
    assert room.fake.begun == began + 1
    turn = the_only_call(room, agent)
    assert [joined.how for joined in turn.joined] == ["coalesced"]
    rollout = agent.exported(tmp_path)
    assert [wires.sampled(sequence) for sequence in rollout.sequences] == [[answer_ids]]


def test_case_f2_a_used_key_with_another_body_is_a_conflict_and_nothing_is_sampled(room: Any) -> None:
    agent = room.agent()
    room.script("A<|im_end|>")
    agent.say("go", headers={"idempotency-key": "k"})
    other = agent.say("go elsewhere", headers={"idempotency-key": "k"})
    assert (other.status, other.error["code"], other.prompts) == (409, "idempotency_conflict", 0)
    assert (agent.summary["calls"], agent.summary["failed_calls"]) == (1, {"refused": 1})


@STREAMS
def test_case_f3_a_client_that_hangs_up_stops_the_engine_after_a_grace(
    room: Any, wires: Any, stream: bool, tmp_path: Path
) -> None:
    agent = room.agent()
    _, answer_ids = room.script(room.ids("word") * 2000, "A<|im_end|>")
    room.fake.token_delay_s = 0.05
    before, aborted = room.fake.begun, room.fake.aborted
    with agent.calling(agent.body("go", stream=stream)) as line:
        wires.eventually(lambda: room.fake.begun > before)
        heard = b""
        while stream and b"data: " not in heard:
            heard += line.recv(65536)
    wires.eventually(lambda: room.fake.aborted > aborted)
    wires.eventually(lambda: agent.summary["failed_calls"] == {"client_gone": 1})
    room.fake.token_delay_s = 0.0
    again = agent.say("go", stream=stream)

    assert (again.text, again.history, again.prompts) == ("A", "root", 1)
    gone, _ = room.forest(agent).calls.values()
    assert gone.failed.partial_S.tolist()[:1] == room.ids("word")
    rollout = agent.exported(tmp_path)
    counts = rollout.token_counts
    assert (counts.trainable, counts.sampled) == (len(answer_ids), len(answer_ids) + len(gone.failed.partial_S))
    assert sum(counts.discarded.values()) == len(gone.failed.partial_S)


def test_a_repeat_on_purpose_is_a_sibling(room: Any, wires: Any, tmp_path: Path) -> None:
    agent = room.agent()
    a_ids, b_ids = room.script("A<|im_end|>", "B<|im_end|>")
    texts = [agent.say("go").text, agent.say("go").text]
    assert texts == ["A", "B"]
    rollout = agent.exported(tmp_path)
    assert [wires.sampled(sequence) for sequence in rollout.sequences] == [[a_ids], [b_ids]]
    assert agent.summary["retries"] == 0


def test_two_equal_requests_at_once_are_two_samples(room: Any, wires: Any) -> None:
    agent = room.agent()
    room.script("A<|im_end|>", "B<|im_end|>")
    room.fake.token_delay_s = 0.1
    together = threading.Barrier(2)

    def ask() -> str:
        together.wait()
        return agent.say("go").text

    with ThreadPoolExecutor(2) as pool:
        texts = [pool.submit(ask), pool.submit(ask)]
        assert {text.result(wires.PATIENCE_S) for text in texts} == {"A", "B"}
