"""What a server is started with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnstile.config import Settings


@pytest.fixture(scope="module")
def settings(
    wire_up: Callable[..., Any], tools_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Settings]:
    """Of a server over the fake engine, on any free port."""
    with wire_up(tools_folder, ["<|im_end|>"]) as room:
        url = f"http://127.0.0.1:{room.fake.port}"
        yield Settings(engine=url, tokenizer=tools_folder, store=tmp_path_factory.mktemp("start"), port=0)
