"""Turnstiles in processes of their own over one scripted engine."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

# The programs beside this file are run by their paths, and then find each other; so do tests that use their parts.
sys.path.insert(0, str(Path(__file__).parent))

from bad_disk import BadDisk, compiler
from nursery import Nursery
from scripted import Scripted, scripted
from siege import Siege


@pytest.fixture(scope="session")
def chaos_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the model folder is."""
    return tmp_path_factory.mktemp("chaos")


@pytest.fixture(scope="session")
def chaos_engine(chaos_folder: Path) -> Iterator[Scripted]:
    """An engine that answers every prompt with other words."""
    with scripted(chaos_folder / "model", seed=1, token_delay_s=0.001) as engine:
        yield engine


@pytest.fixture(scope="session")
def healthy(chaos_folder: Path) -> Iterator[Nursery]:
    """Where Turnstiles come from whose environment is ours."""
    nursery = Nursery(chaos_folder / "turnstile.log")
    yield nursery
    nursery.close()


@pytest.fixture(scope="session")
def siege_of() -> type[Siege]:
    """A Turnstile in a process of its own."""
    return Siege


@pytest.fixture
def besieged(
    chaos_folder: Path, chaos_engine: Scripted, healthy: Nursery, tmp_path: Path
) -> Iterator[Callable[..., Siege]]:
    """Starts a Turnstile for a crowd: `besieged(store, environment, options...)`."""
    with ExitStack() as stack:

        def begin(store: Path, environment: dict[str, str] | None = None, *options: str) -> Siege:
            nursery = healthy
            if environment:
                nursery = Nursery(tmp_path / "turnstile.log", environment)
                stack.callback(nursery.close)
            siege = Siege(chaos_folder / "model", nursery, chaos_engine, store, options)
            siege.start()
            stack.callback(siege.server.kill)
            return siege

        yield begin


@pytest.fixture
def bad_disk(tmp_path: Path) -> Callable[..., BadDisk]:
    """A disk that fails on demand, for the files under a folder."""
    if compiler() is None or sys.platform != "linux":
        pytest.skip("no C compiler, or no Linux: the disk that fails on demand cannot be built")

    def make(root: Path, **how: Any) -> BadDisk:
        root.mkdir(parents=True, exist_ok=True)
        return BadDisk(tmp_path / "disk", root, **how)

    return make
