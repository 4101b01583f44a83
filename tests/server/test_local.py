"""`turnstile.serve`: the same server inside the caller's process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import CallerError, EngineError
from turnstile.server.local import serve


def test_a_server_runs_for_as_long_as_the_block_and_the_store_stays(
    wired: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    room = wired()
    engine = f"http://127.0.0.1:{room.fake.port}"
    for attempt in (1, 2):
        with serve(engine=engine, store=tmp_path, tokenizer=str(tools_folder), model="m", admin_key="k") as client:
            with client.rollout("r") as rollout:
                assert rollout.attempt == attempt
            assert client.trajectory("r").status == "completed"


def test_what_keeps_it_from_starting_is_raised_in_the_callers_thread(
    wired: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    engine = f"http://127.0.0.1:{wired().fake.port}"
    with pytest.raises(CallerError, match="--tokenizer"), serve(engine=engine, store=tmp_path):
        pass
    nobody = "http://127.0.0.1:9"
    with pytest.raises(EngineError, match=nobody), serve(engine=nobody, store=tmp_path, tokenizer=tools_folder):
        pass


def test_an_error_inside_the_block_is_the_callers_own(
    wired: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    engine = f"http://127.0.0.1:{wired().fake.port}"
    with pytest.raises(ZeroDivisionError), serve(engine=engine, store=tmp_path, tokenizer=tools_folder):
        raise ZeroDivisionError


def test_quirks_of_ones_own_and_quirks_that_are_not_wanted_are_told_as_to_the_command(
    wired: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    engine = f"http://127.0.0.1:{wired().fake.port}"
    started = {"engine": engine, "tokenizer": tools_folder, "store": tmp_path / "store"}
    own = tmp_path / "own.toml"
    own.write_text(
        'version = 1\n[[quirks]]\nname = "probe"\nwhen = {user_is = "probe"}\n'
        'action = {type = "mark_auxiliary", purpose = "probe"}\n',
        encoding="utf-8",
    )
    body = {"model": "m", "max_tokens": 1}
    with serve(**started, quirks=str(own), no_quirks=["claude_code_quota"]) as client:
        for said in ("probe", "quota"):
            client.post("/r/r/v1/chat/completions", {**body, "messages": [{"role": "user", "content": said}]})
        summary = json.loads(client.get("/rollouts/r"))
    assert (summary["kinds"], summary["quirks"]) == ({"auxiliary:probe": 1, "turn": 1}, {"probe": 1})
    with pytest.raises(CallerError, match="billing"), serve(**started, no_quirks=["billing"]):
        pass
