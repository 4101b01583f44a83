"""`turnstile.serve`: the same server inside the caller's process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.client import Client
from turnstile.errors import CallerError, EngineError
from turnstile.server.local import serve
from turnstile.store import Reader


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


def test_what_becomes_of_max_tokens_and_of_suspect_log_probabilities_is_told_as_to_the_command(
    wired: Callable[..., Any], tools_folder: Path, tmp_path: Path
) -> None:
    room = wired()
    started = {"engine": f"http://127.0.0.1:{room.fake.port}", "tokenizer": tools_folder, "store": tmp_path / "store"}
    body = {"model": "m", "max_tokens": 10**6, "messages": [{"role": "user", "content": "hi"}]}
    with serve(**started, overflow="clamp", suspect_logprobs="mask") as client:
        room.script("Hello.<|im_end|>")
        client.post("/r/r/v1/chat/completions", body)
        rollout = client.trajectory("r")
    assert rollout.samplings[0].max_tokens == room.fake.context - rollout.sequences[0].prompt_length
    assert rollout.extra["turnstile.suspect_logprobs"] == "mask"


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


def test_how_long_rollouts_stay_open_and_are_kept_is_told_as_to_the_command(
    wired: Callable[..., Any], wires: Any, tools_folder: Path, tmp_path: Path
) -> None:
    started = {"engine": f"http://127.0.0.1:{wired().fake.port}", "tokenizer": tools_folder, "store": tmp_path}
    with serve(**started, idle_timeout_s=0.1) as client:
        for name in ("old", "more"):
            client.rollout(name)
        wires.eventually(lambda: ends(client) == ["idle_timeout"] * 2)
        client.mark_exported("old", to="x")
    with serve(**started, keep_for_s=0.001) as client:
        wires.eventually(lambda: deleted(tmp_path) == [("old", "age")])
    with serve(**started) as client:
        client.mark_exported("more", to="x")
    with serve(**started, keep_gb=1e-9):
        wires.eventually(lambda: deleted(tmp_path) == [("more", "size"), ("old", "age")])


def ends(client: Client) -> list[str | None]:
    return [json.loads(client.get(f"/rollouts/{name}"))["end_reason"] for name in ("old", "more")]


def deleted(store: Path) -> list[tuple[str, str]]:
    with Reader.open(store) as reader:
        return sorted((each.rollout_id, each.reason) for each in reader.tombstones())


@pytest.mark.parametrize("setting", ["retention", "literal_specials", "overflow", "suspect_logprobs"])
def test_a_word_that_a_setting_does_not_know_is_named_with_those_that_it_does(
    wired: Callable[..., Any], tools_folder: Path, tmp_path: Path, setting: str
) -> None:
    engine = f"http://127.0.0.1:{wired().fake.port}"
    started: Any = {"engine": engine, "store": tmp_path, "tokenizer": tools_folder, setting: "keep"}
    with pytest.raises(CallerError, match=f"`{setting}` is `keep`") as refused, serve(**started):
        pass
    assert refused.value.remedy.startswith("Give one of ")
