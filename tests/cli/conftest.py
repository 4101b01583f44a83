"""The commands as people call them, on a store that a real server left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from turnstile.cli import app


@pytest.fixture
def run() -> Callable[..., Result]:
    """Calls `turnstile`; what goes wrong comes back in the result's `exception`."""
    return lambda *arguments: CliRunner().invoke(app, [str(each) for each in arguments])


@pytest.fixture(scope="session")
def store(wire_up: Callable[..., Any], tools_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rollouts of two turns: `one` in group `g`, finished, and `two`, still running."""
    store = tmp_path_factory.mktemp("cli")
    with wire_up(tools_folder, ["<|im_end|>"], store=store) as room:
        # "Hello" is sampled letter by letter: a client of text would have had other ids.
        letters = [token for letter in "Hello" for token in room.ids(letter)]
        for name, group in (("one", "g"), ("two", "h")):
            room.script([*letters, *room.ids("<|im_end|>")], "Bye.<|im_end|>")
            agent = room.agent(rollout_id=name, group_id=group)
            first = agent.say("Hi")
            agent.say("Hi", first.message, "Bye")
            if name == "one":
                agent.handle.finish(reward=1.0)
    # An export leaves its mark in a store.
    shutil.copytree(store, _untouched(store))
    return store


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    """A store of this test's own, as the server left it: nothing of it was exported."""
    return shutil.copytree(_untouched(store), tmp_path / "copy")


def _untouched(store: Path) -> Path:
    return store.with_name(f"{store.name}-untouched")
