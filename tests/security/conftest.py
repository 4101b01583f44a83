"""A Turnstile that asks for keys, with an engine that remembers all that it heard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ADMIN, READ = "an-operators-own-key", "a-readers-only-key"


@pytest.fixture(scope="session")
def guarded(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    """With an admin key and a read key."""
    with wire_up(tools_folder, ["<|im_end|>"], admin_key=ADMIN, read_key=READ) as room:
        yield room


@pytest.fixture(scope="session")
def keyless(wire_up: Callable[..., Any], tools_folder: Path) -> Iterator[Any]:
    """Without keys, on loopback, with one more name allowed."""
    with wire_up(tools_folder, ["<|im_end|>"], allow_hosts=("host.docker.internal",)) as room:
        yield room
