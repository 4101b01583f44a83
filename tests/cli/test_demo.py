"""`turnstile demo`, from nothing to a validated trajectory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.trajectory.files import read


@pytest.mark.engine
def test_the_demo_shows_what_was_recorded_and_leaves_a_valid_trajectory(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    told = run("demo", "-o", tmp_path)
    assert told.exit_code == 0, told.output
    for heading in ("1. The agent", "2. What the model saw", "3. What a client of text", "4. The trajectory"):
        assert heading in told.stdout
    assert "0 errors" in told.stdout
    assert "Expected here, because the demo forces its tool calls" in told.stdout
    assert f"Next: turnstile export {tmp_path / 'store'} -o all.parquet\n" in told.stdout
    (file,) = tmp_path.glob("*.jsonl")
    (rollout,) = read(file)
    assert [call.history for call in rollout.calls] == ["root", "spliced", "spliced", "spliced"]
    (sequence,) = rollout.sequences
    assert len(list(sequence.sampled_segments())) == 4
    assert rollout.reward in (0.0, 1.0)
    again = run("drift", tmp_path / "store", "--json")
    assert again.exit_code == 0
