"""How one request of an agent is answered: headers, keep-alives, limits, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def brisk(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    """A server that loses its patience soon."""
    quick = {"keep_alive_s": 0.05, "grace_s": 0.1, "finish_patience_s": 0.2, "max_body_bytes": 4096}
    with wire_up(tools_folder, ["<|im_end|>"], **quick) as room:
        yield room


@pytest.fixture
def room(brisk: Any) -> Iterator[Any]:
    yield brisk
    brisk.fake.forget()


def test_an_answer_names_its_rollout_its_call_and_how_its_prompt_came_about(room: Any) -> None:
    room.script("A<|im_end|>")
    agent = room.agent()
    said = agent.say("Hi")
    named = {name: value for name, value in said.headers.items() if name.startswith("x-turnstile")}
    assert named == {
        "x-turnstile-rollout": agent.handle.rollout_id, "x-turnstile-call": "c0", "x-turnstile-history": "root",
    }  # fmt: skip
    assert said.json["id"] == f"chatcmpl-{agent.handle.rollout_id}-c0"


def test_answers_of_two_attempts_have_different_names(room: Any) -> None:
    room.script("A<|im_end|>", "A<|im_end|>")
    agent = room.agent()
    first = agent.say("Hi")
    agent.handle.finish()
    again = room.agent(rollout_id=agent.handle.rollout_id)
    assert again.say("Hi").json["id"] != first.json["id"]


def test_a_silent_engine_is_bridged_by_keep_alives_that_the_stream_survives(room: Any, wires: Any) -> None:
    room.script("A<|im_end|>")
    room.fake.held = True
    agent = room.agent()
    with agent.calling(agent.body("Hi", stream=True)) as line:
        heard = line.recv(65536)
        while heard.count(b": keep-alive") < 3:
            heard += line.recv(65536)
        room.fake.held = False
        while not heard.endswith(b"0\r\n\r\n"):
            heard += line.recv(65536)
    assert heard.startswith(b"HTTP/1.1 200")
    assert b"data: [DONE]" in heard
    assert room.forest(agent).calls["c0"].committed is not None


def test_an_error_after_a_keep_alive_is_an_error_event_and_no_clean_end(room: Any, fakes: Any) -> None:
    room.fake.faults.append(fakes.Fault.NOT_JSON)
    room.fake.held = True
    agent = room.agent()
    with agent.calling(agent.body("Hi", stream=True)) as line:
        heard = line.recv(65536)
        while b": keep-alive" not in heard:
            heard += line.recv(65536)
        room.fake.held = False
        while not heard.endswith(b"0\r\n\r\n"):
            heard += line.recv(65536)
    assert heard.startswith(b"HTTP/1.1 200")
    assert (heard.count(b'"code":"engine_broken"'), heard.count(b"[DONE]")) == (1, 0)
    assert agent.summary["failed_calls"] == {"engine_broken": 1}


def test_a_whole_answer_is_not_begun_while_the_engine_is_silent(room: Any, wires: Any) -> None:
    room.script("A<|im_end|>")
    room.fake.token_delay_s = 0.2
    said = room.agent().say("Hi")
    assert (said.status, said.text) == (200, "A")


def test_a_body_is_read_no_further_than_the_limit(room: Any) -> None:
    room.script("A<|im_end|>")
    agent = room.agent()
    fits = agent.say("x" * 3000)
    refused = agent.say("x" * 5000)
    assert (fits.status, refused.status, refused.error["code"]) == (200, 413, "body_too_large")
    assert "4096" in refused.error["message"]


def test_a_call_that_runs_when_its_rollout_is_closed_is_given_up_and_its_client_told(room: Any, wires: Any) -> None:
    room.fake.held = True
    agent = room.agent()
    began = room.fake.begun
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(agent.say, "Hi")
        wires.eventually(lambda: room.fake.begun > began)
        agent.handle.finish(status="aborted")
        answer = said.result(wires.PATIENCE_S)
    assert (answer.status, answer.error["code"], answer.headers["retry-after"]) == (503, "cancelled", "1")
    assert (agent.summary["status"], agent.summary["failed_calls"]) == ("aborted", {"client_gone": 1})


def test_a_client_that_is_told_that_the_engine_is_busy_is_told_when_to_come_back(room: Any, fakes: Any) -> None:
    agent = room.agent()
    room.fake.faults.append(fakes.Fault.BUSY_429)
    said = agent.say("Hi")
    assert (said.status, said.error["type"], said.headers["retry-after"]) == (429, "rate_limit_error", "1")


def test_n_choices_of_which_one_fails_are_no_turn(room: Any, fakes: Any) -> None:
    agent = room.agent()
    room.fake.faults.append(fakes.Fault.ERROR_500)
    said = agent.say("Hi", n=2)
    assert (said.status, said.error["code"]) == (500, "engine_refused")
    assert [state.committed for state in room.forest(agent).calls.values()] == [None]


def test_n_choices_are_siblings_of_one_prompt(room: Any, wires: Any, tmp_path: Path) -> None:
    scripted = room.script("A<|im_end|>", "B<|im_end|>", "C<|im_end|>")
    agent = room.agent()
    said = agent.say("Hi", n=3)
    assert sorted(choice["message"]["content"] for choice in said.json["choices"]) == ["A", "B", "C"]
    assert said.json["usage"]["completion_tokens"] == sum(map(len, scripted))
    rollout = agent.exported(tmp_path)
    assert sorted(wires.sampled(sequence)[0] for sequence in rollout.sequences) == sorted(scripted)
    room.script("D<|im_end|>")
    chosen = said.json["choices"][1]["message"]
    assert agent.say("Hi", {"role": "assistant", "content": chosen["content"]}, "more").history == "spliced"


def test_a_client_that_leaves_in_the_middle_of_its_request_is_noted_and_nothing_breaks(
    room: Any, wires: Any, caplog: pytest.LogCaptureFixture
) -> None:
    agent = room.agent()
    with agent.calling(agent.body("Hi"), {"expect": "100-continue"}, missing_bytes=1) as line:
        # Which says that somebody reads.
        assert line.recv(65536).startswith(b"HTTP/1.1 100 ")
    wires.eventually(lambda: agent.summary["failed_calls"] == {"client_gone": 1})
    room.script("A<|im_end|>")
    assert agent.say("Hi").text == "A"
    assert caplog.records == []
