"""Closed rollouts that are still asked for are read back once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from turnstile.exchange.closed import ClosedRollouts
from turnstile.exchange.open_rollout import OpenRollout
from turnstile.history.forest import Forest
from turnstile.journal import CallRejected, RolloutFinished, RolloutOpened, RolloutStatus
from turnstile.store import Journal


def ended(rollout_id: str, at: datetime, journal: Journal) -> OpenRollout:
    opened = RolloutOpened(rollout_id, 2, at, agent_key_sha256="hash")
    rejected = CallRejected(rollout_id, at, "rollout_closed")
    finished = RolloutFinished(rollout_id, at, RolloutStatus.COMPLETED)
    return OpenRollout(Forest.of([opened, finished, rejected]), opened, journal)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with contextlib.closing(Journal.open(tmp_path / "store")) as opened:
        yield opened


def test_what_refuses_a_call_is_remembered(journal: Journal, clock: Callable[[], datetime]) -> None:
    closed = ClosedRollouts(journal)
    rollout = ended("r", clock(), journal)
    rollout.refusals = 7
    shut = closed.put(rollout)
    assert closed.get("r") is shut
    assert (shut.opened, shut.closing, shut.refusals, shut.forest) == (rollout.opened, True, 7, rollout.forest)
    closed.drop("r")
    assert closed.get("r") is None


def test_only_the_latest_are_remembered(journal: Journal, clock: Callable[[], datetime]) -> None:
    closed = ClosedRollouts(journal, most=2)
    for name in ("a", "b", "c"):
        closed.put(ended(name, clock(), journal))
    assert [closed.get(name) is not None for name in ("a", "b", "c")] == [False, True, True]
