"""The demo's agent and the folder that it works in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from turnstile.cli.demo_agent import STEPS, Folder, run_agent


def test_tools_really_do_something(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.run("list_files", "") == "(empty)"
    assert folder.run("write_file", '{"path": "a.txt", "content": "sea"}') == "wrote 3 characters"
    assert folder.run("read_file", '{"path": "a.txt"}') == "sea"
    assert folder.run("list_files", "{}") == "a.txt"
    assert (tmp_path / "a.txt").read_text() == "sea"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", '{"path": "../secret"}'),
        ("read_file", '{"path": "/etc/passwd"}'),
        ("write_file", '{"path": "sub/x", "content": ""}'),
        ("read_file", '{"path": ""}'),
        ("read_file", '{"path": "none"}'),
        ("read_file", '{"path": "a\\u0000b"}'),
        ("read_file", "[]"),
        ("read_file", "not json"),
        ("write_file", '{"path": "x"}'),
        ("fly", "{}"),
        ("write_file", '{"path": "' + "x" * 5000 + '", "content": ""}'),
        ("write_file", '{"path": "x", "content": "\\ud800"}'),
    ],
)
def test_what_goes_wrong_is_told_to_the_model_and_nothing_outside_the_folder_is_touched(
    tmp_path: Path, name: str, arguments: str
) -> None:
    inside = tmp_path / "folder"
    inside.mkdir()
    (tmp_path / "secret").write_text("secret")
    told = Folder(inside).run(name, arguments)
    assert told.startswith("error: ")
    assert "secret" not in told.removeprefix("error: ").replace("'../secret'", "")


def test_the_agent_takes_its_steps_and_goes_on_after_a_turn_without_a_call(
    wired: Callable[..., Any], tmp_path: Path
) -> None:
    room = wired()
    write = '<tool_call>\n{"name": "write_file", "arguments": {"path": "sea.txt", "content": "waves"}}\n</tool_call>'
    read = '<tool_call>\n{"name": "read_file", "arguments": {"path": "sea.txt"}}\n</tool_call>'
    room.script(f"{write}<|im_end|>", "No idea.<|im_end|>", f"{read}<|im_end|>", "It has waves.<|im_end|>")
    handle = room.client.rollout()
    shown: list[str] = []
    with OpenAI(base_url=handle.openai_base_url, api_key=handle.agent_key, max_retries=0) as client:
        steps = list(run_agent(client, "m", Folder(tmp_path), shown.append))
    assert [step.partition("(")[0] for step in steps] == ["write_file", "", "read_file"]
    assert steps[2].endswith("-> waves")
    assert "".join(shown) == "It has waves."
    (sequence,) = handle.trajectory().sequences
    assert len(list(sequence.sampled_segments())) == len(STEPS) + 1
