"""Public cases M1 and M2: memory, storage and concurrency that stay in bounds; readers and bodies that do not.

M3 and M4 are in tests/security. A whole server under a long load is `tests/chaos/load.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnstile.journal import TurnCommitted, encode
from turnstile.store import Reader

TURNS = 24


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired()


def test_case_m1_what_a_turn_takes_in_the_store_does_not_grow_with_the_turns_before_it(room: Any) -> None:
    agent = room.agent()
    messages: list[dict[str, Any] | str] = []
    for turn in range(TURNS):
        room.script("Noted. <|im_end|>")
        messages.append(f"line {turn:03}: " + "a few words more " * 10)
        messages.append(agent.say(*messages).message)
    taken = [0]
    with Reader.open(room.store) as reader:
        for record in reader.records(agent.handle.rollout_id):
            taken[-1] += len(encode(record))
            if isinstance(record, TurnCommitted):
                taken.append(0)
    turns = taken[1:-1]
    assert len(turns) == TURNS - 1
    assert max(turns) < 1.2 * min(turns)


def test_case_m1_a_closed_rollout_leaves_memory(room: Any) -> None:
    before = room.get("/healthz")["open_rollouts"]
    agents = [room.agent() for _ in range(8)]
    for agent in agents:
        room.script("A<|im_end|>")
        agent.say("go")
    during = room.get("/healthz")["open_rollouts"]
    for agent in agents:
        agent.handle.finish(reward=1.0)
    assert (during - before, room.get("/healthz")["open_rollouts"] - before) == (8, 0)


def test_case_m2_a_client_that_reads_nothing_stops_neither_the_engine_nor_the_record(room: Any, wires: Any) -> None:
    agent = room.agent()
    long = room.ids(" word") * 3000 + room.ids("<|im_end|>")
    room.script(long)
    with agent.calling(agent.body("go", stream=True, max_tokens=3500)):
        wires.eventually(lambda: any(state.committed for state in room.forest(agent).calls.values()))
    (state,) = room.forest(agent).calls.values()
    assert state.committed.choices[0].ids_S.tolist() == long


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"model": "m", "messages": [' + b" " * (33 << 20), 413, "body_too_large"),
        (b'{"model": "m", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "invalid_json"),
        (b"[" * (5 << 20) + b"]" * (5 << 20), 400, "invalid_value"),
    ],
    ids=["over the limit", "nested 100,000 deep", "10 MB of nesting"],
)
def test_case_m2_a_body_over_a_limit_is_refused_in_the_dialects_form_and_costs_nothing(
    room: Any, body: bytes, status: int, code: str
) -> None:
    agent = room.agent()
    refused = agent.post(body)
    room.script("A<|im_end|>")
    assert (refused.status, refused.error["code"], refused.error["type"]) == (status, code, "invalid_request_error")
    assert agent.say("go").text == "A"
