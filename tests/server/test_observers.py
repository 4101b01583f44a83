"""What a running server tells those who look at it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


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


def test_a_server_says_that_it_lives_without_asking_anybody(room: Any) -> None:
    answer: httpx.Response = room.http.get(f"{room.client.url}/livez")
    assert (answer.status_code, json.loads(answer.content)) == (200, {"status": "ok"})
