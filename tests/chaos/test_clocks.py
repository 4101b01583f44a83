"""Whatever the times in a journal are, what is trained is the same: no order and no fate hangs on a clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.history.forest import Forest
from turnstile.journal import Record
from turnstile.store import Reader
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.validate import validate

pytestmark = pytest.mark.timeout(300)


def moved(record: Record, by: timedelta) -> Record:
    """The same record as a clock that is off would have dated it."""
    times = {
        name: each + by for name in record.__struct_fields__ if isinstance(each := getattr(record, name), datetime)
    }
    return msgspec.structs.replace(record, **times)


def without_times(rollout: Rollout) -> object:
    """All that a trainer is told."""
    calls = [
        (call.call_id, call.kind, call.kind_reason, call.parent, call.sequence, call.history) for call in rollout.calls
    ]
    sequences = [(each.token_ids, each.logprobs, each.segments, each.messages) for each in rollout.sequences]
    return calls, sequences, rollout.token_counts


def jumps(count: int, draw: random.Random) -> list[list[timedelta]]:
    """By how much each record's clock is off: set back or forth in mid-rollout, or never right."""
    at = draw.randrange(1, count)
    off = [timedelta(hours=hours) for hours in (-5, 5, -24 * 400)]
    steps = [[timedelta()] * at + [each] * (count - at) for each in off]
    return [*steps, [timedelta(seconds=draw.uniform(-1e6, 1e6)) for _ in range(count)]]


async def test_a_clock_that_is_set_back_or_forth_changes_no_order_no_fate_and_no_token(
    besieged: Callable[..., Any], tmp_path: Path
) -> None:
    siege = besieged(tmp_path / "store")
    siege.crowd.hang_ups = 0.5
    async with siege.talking():
        await siege.until(lambda: len(siege.crowd.finished) >= 4)
    siege.server.kill()
    assert siege.breaches() == []
    draw = random.Random(1)
    seen = 0
    with Reader.open(siege.store) as reader:
        for rollout_id in sorted(siege.crowd.finished):
            records = list(reader.records(rollout_id))
            expected, lost = without_times(assemble(Forest.of(records))), lost_calls(records)
            for offsets in jumps(len(records), draw):
                wrong = [moved(record, by) for record, by in zip(records, offsets, strict=True)]
                rollout = assemble(Forest.of(wrong))
                assert [str(each) for each in validate(rollout) if each.code.startswith("E")] == []
                assert without_times(rollout) == expected
                assert lost_calls(wrong) == lost
                seen += 1
    assert seen >= 16


def lost_calls(records: list[Record]) -> set[str]:
    """The calls whose answers a repeat is given without saying that it is one."""
    forest = Forest.of(records)
    return {call_id for call_id, state in forest.calls.items() if state.never_arrived}
