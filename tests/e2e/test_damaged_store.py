"""A server whose store is damaged while it runs says so."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from turnstile.errors import TurnstileError


def test_a_record_that_is_found_damaged_degrades_the_server_and_costs_no_other_rollout(
    wire_up: Callable[..., Any], tools_folder: Path, wires: Any
) -> None:
    with wire_up(tools_folder, ("<|im_end|>",)) as room:
        whole, harmed = room.agent(), room.agent()
        for agent in (whole, harmed):
            room.script("Yes.<|im_end|>")
            agent.say("Hi")
            agent.handle.finish(reward=1.0)
        health = f"{room.client.url}/healthz"
        assert httpx.get(health, trust_env=False).json()["status"] == "ok"
        with contextlib.closing(sqlite3.connect(room.store / "journal.sqlite3", isolation_level=None)) as connection:
            connection.execute("UPDATE records SET crc32 = crc32 + 1 WHERE rollout_id = ?", [harmed.handle.rollout_id])
        with pytest.raises(TurnstileError, match="is damaged"):
            harmed.handle.trajectory()
        told = httpx.get(health, trust_env=False).json()
        assert told["status"] == "degraded"
        (trouble,) = wires.troubles(told)
        assert harmed.handle.rollout_id in trouble
        assert whole.handle.trajectory().reward == 1.0
