"""Rollouts over a real store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from turnstile.exchange.rollouts import Rollouts
from turnstile.store import Journal, Reader

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> Callable[[], datetime]:
    """A second passes at each look."""
    looks = iter(range(10**6))
    return lambda: START + timedelta(seconds=next(looks))


@pytest.fixture
def reopen(tmp_path: Path, clock: Callable[[], datetime]) -> Iterator[Callable[[], Rollouts]]:
    """Rollouts as a process that starts on the store finds them; the process before is gone."""
    open_now: list[Journal | Reader] = []

    def close() -> None:
        for each in open_now:
            each.close()
        open_now.clear()

    def reopen() -> Rollouts:
        close()
        journal = Journal.open(tmp_path)
        reader = Reader.open(tmp_path)
        open_now.extend((journal, reader))
        return Rollouts(journal, reader, clock)

    yield reopen
    close()


@pytest.fixture
def rollouts(reopen: Callable[[], Rollouts]) -> Rollouts:
    return reopen()
