"""A client's JSON that no trajectory can hold is refused: one such call would leave a rollout without an export."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.protocols import DIALECTS

SCHEMAS = {"a number that no double holds": '{"maximum": 1e400}', "deep": '{"a":' * 240 + "1" + "}" * 240}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
def test_a_tool_that_no_trajectory_holds_is_refused_and_the_rollout_is_exported(
    wired: Callable[..., Any], speaking: Any, dialect: str, schema: str, tmp_path: Path
) -> None:
    room = wired()
    it = speaking.Talker(room, speaking.SPEAKERS[dialect], room.agent())
    body = it.speaker.body("go").decode()
    assert body.count('{"type": "string"}') == 1
    told = it.send(body.replace('{"type": "string"}', schema).encode(), stream=False)
    assert (told.status, told.prompts, it.speaker.is_refusal(told.body)) == (400, 0, True)
    assert b"tools[0]" in told.body
    assert it.agent.exported(tmp_path).sequences == ()


@pytest.mark.parametrize("dialect", [dialect.name for dialect in DIALECTS])
def test_a_compressed_body_is_refused_by_its_encoding(wired: Callable[..., Any], speaking: Any, dialect: str) -> None:
    room = wired()
    it = speaking.Talker(room, speaking.SPEAKERS[dialect], room.agent())
    told = it.send(gzip.compress(it.speaker.body("go")), stream=False, headers={"content-encoding": "gzip"})
    assert (told.status, told.prompts, it.speaker.is_refusal(told.body)) == (400, 0, True)
    assert b"compressed as `gzip`" in told.body
    assert it.agent.summary["failed_calls"] == {"refused": 1}


def test_metadata_that_no_trajectory_holds_is_refused(wired: Callable[..., Any]) -> None:
    room = wired()
    for value in SCHEMAS.values():
        refused = room.http.post(f"{room.client.url}/rollouts", content=f'{{"metadata": {{"a": {value}}}}}')
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "metadata")
