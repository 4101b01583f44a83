"""The examples' engine with a model that sees, and what a plain forward of the same weights says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def plain_vision(token_servers: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    plain = token_servers.Plain(token_servers.PYTHON, tmp_path_factory.mktemp("plain") / "vision", "vision")
    yield plain
    plain.close()


@pytest.fixture(scope="session")
def served_vision(token_servers: Any, plain_vision: Any) -> Iterator[Any]:
    served = token_servers.Served(token_servers.PYTHON, plain_vision.folder)
    yield served
    served.close()
