"""Another package's bridge confirms ours, through the whole server (docs/decisions/0017)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("renderers") is None, reason="the package `renderers` is not installed"
)


def test_a_confirmed_bridge_is_said_in_the_trajectory_and_held_ids_are_unchanged(
    wire_up: Callable[..., Any], wires: Any, family: Callable[[str], Path], tmp_path: Path
) -> None:
    with wire_up(family("qwen3"), ("<|im_end|>",), plugin_bridges="renderers") as room:
        ls = wires.tool("ls", p="string")
        call_ids, _ = room.script(
            '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call><|im_end|>', "Two files.<|im_end|>"
        )
        agent = room.agent()
        first = agent.say("What is in /a?", tools=[ls])
        (call,) = first.message["tool_calls"]
        second = agent.say(
            wires.user("What is in /a?"), first.message, wires.tool_result(call["id"], "b c"), tools=[ls]
        )

        held = first.prompt + call_ids
        assert (second.history, second.prompt[: len(held)]) == ("spliced", held)
        calls = agent.exported(tmp_path).extra["turnstile.calls"]
        assert [facts["bridge"] for facts in calls.values() if "bridge" in facts] == ["plugin"]
