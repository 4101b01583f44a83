"""`turnstile.serve`: the same server inside the caller's process."""

from __future__ import annotations

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
