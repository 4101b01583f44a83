"""Rollouts as a real server left them in its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.reports.shelf import ModelShelf
from turnstile.store import Blobs, Reader

ANSWERS = (
    "Hello there.<|im_end|>",
    '<tool_call>\n{"name":"ls","arguments":{"p":"/a"}}\n</tool_call><|im_end|>',
    "Done.<|im_end|>",
)


class Left(msgspec.Struct, frozen=True):
    """A store that a server has closed, and the rollout in it."""

    store: Path
    rollout_id: str
    answers: tuple[list[int], ...]


@pytest.fixture(scope="session")
def left(wire_up: Callable[..., Any], wires: Any, tools_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Three turns: a text, a call that the template spells otherwise, a text."""
    store = tmp_path_factory.mktemp("left")
    with wire_up(tools_folder, ["<|im_end|>"], store=store) as room:
        answers = room.script(*ANSWERS)
        agent = room.agent(group_id="g", task_id="t")
        tools = [wires.tool("ls", p="string")]
        first = agent.say("Hi", tools=tools)
        second = agent.say("Hi", first.message, "List.", tools=tools)
        result = wires.tool_result(second.message["tool_calls"][0]["id"], "b")
        agent.say("Hi", first.message, "List.", second.message, result, tools=tools)
        agent.handle.finish(reward=1.0)
        return Left(store, agent.handle.rollout_id, tuple(answers))


@pytest.fixture
def reader(left: Left) -> Iterator[Reader]:
    with Reader.open(left.store) as reader:
        yield reader


@pytest.fixture
def shelf(left: Left, reader: Reader) -> ModelShelf:
    return ModelShelf(reader, Blobs(left.store))
