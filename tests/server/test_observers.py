"""What a running server tells those who look at it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

PLANTED = ("orchid seven", "violet nine", "a lily", "roses only")
"""What the agent says in its turns, and what the model answers first."""
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


@contextmanager
def logging_into(path: Path) -> Iterator[None]:
    """A file is standard error for servers that start in the block."""
    with path.open("w") as file, redirect_stderr(file):
        yield


def three_turns(room: Any) -> tuple[Any, list[Any]]:
    """A rollout of three turns whose second and third splice; the agent, and what it was answered."""
    room.script(f"{PLANTED[3]}<|im_end|>", "B<|im_end|>", "C<|im_end|>")
    agent = room.agent(rollout_id="three")
    history: list[Any] = []
    answers: list[Any] = []
    for said in PLANTED[:3]:
        history.append({"role": "user", "content": said})
        answers.append(agent.say(*history))
        history.append(answers[-1].message)
    return agent, answers


def figures(room: Any) -> dict[tuple[str, ...], float]:
    """All samples of /metrics by their name and the values of their labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(room.client.get("/metrics").decode())
        for sample in family.samples
    }


def test_a_calls_figures_and_the_journals_are_counted_where_it_runs(room: Any) -> None:
    room.script("A<|im_end|>")
    room.agent().say("Hi")
    text = room.client.get("/metrics").decode()
    engine = f"127.0.0.1:{room.fake.port}"
    for counted in (
        f'turnstile_engine_seconds_count{{engine="{engine}"}}',
        'turnstile_stage_seconds_count{stage="plan"}',
        "turnstile_added_seconds_count",
        "turnstile_journal_append_seconds_count",
    ):
        (line,) = [line for line in text.splitlines() if line.startswith(f"{counted} ")]
        assert float(line.rpartition(" ")[2]) >= 1


def test_each_call_of_a_rollout_is_one_line_with_its_history_ids_and_times_and_nothing_that_was_said(
    wire_up: Callable[..., Any], wires: Any, tools_folder: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with logging_into(log), wire_up(tools_folder, ["<|im_end|>"], log="json") as room:
        _, answers = three_turns(room)
        wires.eventually(lambda: log.read_text().count('"event":"call"') == 3)
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event"] for line in lines] == ["start", "rollout_opened", *["call"] * 3, "shutdown"]
    calls = lines[2:5]
    assert [(call["call"], call["history"]) for call in calls] == [
        ("c0", "root"), ("c1", "spliced"), ("c2", "spliced"),
    ]  # fmt: skip
    prompts = [len(answer.prompt) for answer in answers]
    sampled = [answer.json["usage"]["completion_tokens"] for answer in answers]
    assert [(call["prompt_ids"], call["sampled_ids"]) for call in calls] == list(zip(prompts, sampled, strict=True))
    held = [prompt + answer for prompt, answer in zip(prompts, sampled, strict=True)]
    assert [call["reused_ids"] for call in calls] == [0, *held[:2]]
    told = {"level": "info", "rollout": "three", "attempt": 1, "dialect": "openai.chat", "status": 200}
    told |= {"outcome": "answered", "finish": "stop", "masked": {}, "engine": f"127.0.0.1:{room.fake.port}"}
    for call in calls:
        assert told.items() <= call.items()
        parts = ("plan_ms", "engine_ms", "first_token_ms", "added_ms", "stored_ms")
        assert all(0 < call[part] <= call["total_ms"] for part in parts)
    assert [said for said in PLANTED if said in text] == []


def test_a_rollout_of_three_turns_is_counted_call_by_call_and_id_by_id(
    wire_up: Callable[..., Any], wires: Any, tools_folder: Path
) -> None:
    with wire_up(tools_folder, ["<|im_end|>"]) as room:
        agent, answers = three_turns(room)
        agent.handle.finish(reward=1.0)
        wires.eventually(lambda: figures(room)["turnstile_call_seconds_count",] == 3)
        found = figures(room)
    prompts = [len(answer.prompt) for answer in answers]
    sampled = [answer.json["usage"]["completion_tokens"] for answer in answers]
    held = prompts[0] + sampled[0] + prompts[1] + sampled[1]
    assert {
        ("turnstile_calls_total", "openai.chat", "root", "answered"): 1,
        ("turnstile_calls_total", "openai.chat", "spliced", "answered"): 2,
        ("turnstile_answers_total", "200"): 3,
        ("turnstile_tokens_total", "prompt"): sum(prompts),
        ("turnstile_tokens_total", "held"): held,
        ("turnstile_tokens_total", "added"): sum(prompts) - held,
        ("turnstile_tokens_total", "completion"): sum(sampled),
        ("turnstile_stage_seconds_count", "plan"): 3,
        ("turnstile_stage_seconds_count", "store"): 3,
        ("turnstile_engine_seconds_count", f"127.0.0.1:{room.fake.port}"): 3,
        ("turnstile_finished_tokens_total", "trainable", ""): sum(sampled),
    }.items() <= found.items()


def test_health_says_why_it_is_degraded_until_it_is_not_and_the_log_when(
    wire_up: Callable[..., Any], wires: Any, tools_folder: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    def troubles() -> list[str]:
        return wires.troubles(room.http.get(f"{room.client.url}/healthz").json())

    with logging_into(log), wire_up(tools_folder, ["<|im_end|>"], log="json") as room:
        name = f"127.0.0.1:{room.fake.port}"
        assert troubles() == []
        with room.engine_down():
            wires.eventually(troubles)
            (reason,) = troubles()
            assert name in reason
            wires.eventually(lambda: '"event":"degraded","reason":"engine_down"' in log.read_text())
        wires.eventually(lambda: not troubles())
        wires.eventually(lambda: '"event":"recovered","reason":"engine_down"' in log.read_text())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    changes = [(line["event"], line["level"]) for line in lines if line.get("engine") == name]
    assert changes == [("engine_down", "error"), ("engine_up", "info")]
    assert [(line["event"], line["reason"]) for line in lines if line.get("reason") == "engine_down"] == [
        ("degraded", "engine_down"), ("recovered", "engine_down"),
    ]  # fmt: skip


@pytest.mark.parametrize("otel", ["on", "off"])
def test_the_engine_hears_of_an_agents_trace_only_where_traces_are_made(
    wire_up: Callable[..., Any], tools_folder: Path, otel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody takes the spans: that is no trouble of any call's.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with wire_up(tools_folder, ["<|im_end|>"], otel=otel) as room:
        room.script("A<|im_end|>")
        assert room.agent().say("Hi", headers={"traceparent": PARENT}).text == "A"
        heard = [head.get("traceparent", "") for path, head in room.fake.heads if path == "/completion"]
    parents = [told.split("-")[1] for told in heard if told]
    assert len(heard) >= 1
    assert parents == ([PARENT.split("-")[1]] * len(heard) if otel == "on" else [])
    assert PARENT not in heard


def test_a_server_says_that_it_lives_without_asking_anybody(room: Any) -> None:
    answer: httpx.Response = room.http.get(f"{room.client.url}/livez")
    assert (answer.status_code, json.loads(answer.content)) == (200, {"status": "ok"})
