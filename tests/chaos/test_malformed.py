"""The bounded form of `malformed.py`: as many malformed requests as 20 seconds have room for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from malformed import Plan, run
from malforming import Malformer

SECONDS, AT_MOST, AT_LEAST = 20, 1500, 50


@pytest.mark.timeout(300)
def test_no_malformed_request_breaks_anything_or_is_noticed_by_anybody_else(
    besieged: Callable[..., Any], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    besetting = run(besieged(tmp_path / "store"), Plan(AT_MOST, seed=1, seconds=SECONDS))
    record_property("figures", besetting.told())
    assert besetting.breaches == []
    assert sum(besetting.kinds.values()) >= AT_LEAST
    assert besetting.siege.crowd.seen


def test_a_seed_draws_the_same_attempts_again() -> None:
    first, again = (Malformer(7) for _ in range(2))
    assert [first.attempt() for _ in range(300)] == [again.attempt() for _ in range(300)]


def test_all_kinds_are_drawn() -> None:
    malformer = Malformer(1)
    assert len({malformer.attempt().kind for _ in range(1500)}) == 22
