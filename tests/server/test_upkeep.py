"""A server closes what nobody calls and deletes what is not kept, on its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnstile.store import Reader

STOPS = ["<|im_end|>"]


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def told(room: Any, path: str) -> Any:
    return room.http.get(f"{room.client.url}{path}")


def test_a_rollout_that_nobody_calls_is_closed_with_its_reason(wire_up: Callable[..., Any], tools_folder: Path) -> None:
    with wire_up(tools_folder, STOPS, idle_timeout_s=0.4) as room:
        room.client.rollout("r")
        until(lambda: room.http.get(f"{room.client.url}/rollouts/r").json()["status"] != "running")
        summary = room.http.get(f"{room.client.url}/rollouts/r").json()
        assert (summary["status"], summary["end_reason"], summary["reward"]) == ("aborted", "idle_timeout", None)
        trajectory = room.client.trajectory("r")
        assert (trajectory.status, trajectory.error and trajectory.error.type) == ("aborted", "idle_timeout")
        until(lambda: "turnstile_idle_closed_rollouts_total 1.0" in told(room, "/metrics").text)


def test_what_becomes_of_the_tokens_of_a_rollout_that_nobody_calls_is_counted(
    wire_up: Callable[..., Any], tools_folder: Path
) -> None:
    with wire_up(tools_folder, STOPS, idle_timeout_s=0.4) as room:
        (ids,) = room.script("hello<|im_end|>")
        room.agent().say("hi")
        until(lambda: "turnstile_idle_closed_rollouts_total 1.0" in told(room, "/metrics").text)
        counted = f'turnstile_finished_tokens_total{{fate="trainable",reason=""}} {len(ids)}.0'
        until(lambda: counted in told(room, "/metrics").text)


def test_what_left_and_is_old_goes_while_the_server_runs(wire_up: Callable[..., Any], tools_folder: Path) -> None:
    with wire_up(tools_folder, STOPS, keep_for_s=0.001) as room:
        for name in ("left", "mine"):
            room.client.rollout(name).finish()
        room.client.mark_exported("left", to="x")
        store = room.store
    with wire_up(tools_folder, STOPS, keep_for_s=0.001, store=store) as room:
        until(lambda: 'turnstile_deleted_attempts_total{reason="age"} 1.0' in told(room, "/metrics").text)
        assert [each["rollout_id"] for each in told(room, "/rollouts").json()["rollouts"]] == ["mine"]
    with Reader.open(store) as reader:
        assert [(each.rollout_id, each.reason, each.exported_to) for each in reader.tombstones()] == [
            ("left", "age", "x")
        ]
