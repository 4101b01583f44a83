"""What a power cut leaves: with `--durability power` every answer that anybody got, without it whole ones in order.

The disk under Turnstile writes down every change and every sync. From that the test makes what could be on it if the
machine had stopped at some moment: all that was synced, and of the rest nothing, or sectors of it by chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from judge import lost, unsound

from turnstile.history.forest import Forest
from turnstile.journal import TurnCommitted
from turnstile.store import Journal, Reader

pytestmark = pytest.mark.timeout(300)
CUTS = 12


async def recorded(besieged: Callable[..., Any], bad_disk: Callable[..., Any], store: Path, durability: str) -> Any:
    """A while of talk; each answer with how much the disk had done when its client had it."""
    disk = bad_disk(store, remembers=True)
    siege = besieged(store, disk.environment, "--durability", durability)
    moments: list[int] = []
    async with siege.talking():
        while len(siege.crowd.finished) < 12:
            have = len(siege.crowd.seen)
            await siege.until(lambda have=have: len(siege.crowd.seen) > have)
            # Read after the answer was seen: what made it durable is before this.
            moments += [disk.length()] * (len(siege.crowd.seen) - len(moments))
    siege.server.kill()
    moments += [disk.length()] * (len(siege.crowd.seen) - len(moments))
    return siege, disk, moments


def cut_points(moments: list[int], draw: random.Random) -> list[int]:
    """Right behind answers, and anywhere."""
    return [*draw.sample(sorted(set(moments)), CUTS // 2), *(draw.randint(moments[0], moments[-1]) for _ in range(6))]


def reopened(store: Path) -> list[str]:
    """What is wrong with a store once a server has opened it again."""
    Journal.open(store).close()
    return list(unsound(store))


async def test_with_durability_power_a_power_cut_takes_no_answer_that_anybody_got(
    besieged: Callable[..., Any], bad_disk: Callable[..., Any], tmp_path: Path, record_property: Any
) -> None:
    siege, disk, moments = await recorded(besieged, bad_disk, tmp_path / "store", "power")
    draw = random.Random(1)
    answers = 0
    for number, end in enumerate(cut_points(moments, draw)):
        left = tmp_path / f"left-{number}"
        disk.after_power_cut(end, left, draw if number % 2 else None)
        known = [seen for seen, moment in zip(siege.crowd.seen, moments, strict=True) if moment <= end]
        answers += len(known)
        assert reopened(left) == []
        assert list(lost(left, known)) == []
    record_property("figures", f"{CUTS} power cuts, {answers} answers looked for, {disk.syncs} syncs, none lost")


async def test_with_durability_process_a_power_cut_takes_the_newest_and_leaves_a_whole_store(
    besieged: Callable[..., Any], bad_disk: Callable[..., Any], tmp_path: Path, record_property: Any
) -> None:
    siege, disk, moments = await recorded(besieged, bad_disk, tmp_path / "store", "process")
    with Reader.open(tmp_path / "store") as reader:
        whole = {each: list(reader.records(each)) for each in {seen.rollout_id for seen in siege.crowd.seen}}
    draw = random.Random(2)
    kept = 0
    for number, end in enumerate(cut_points(moments, draw)):
        left = tmp_path / f"left-{number}"
        disk.after_power_cut(end, left, draw if number % 2 else None, written_back=draw.randint(moments[0], end))
        if not (left / "journal.sqlite3").exists():
            continue
        # A rollout may lack its newest records, and a call its end: a server that starts says `interrupted` there.
        assert [each for each in reopened(left) if "call_without_end" not in each] == []
        with Reader.open(left) as reader:
            for rollout_id, records in whole.items():
                found = list(reader.records(rollout_id))
                assert found == records[: len(found)]
                Forest.of(found)
                kept += sum(isinstance(record, TurnCommitted) for record in found)
    record_property(
        "figures", f"{CUTS} power cuts, {kept} answers left in all, each rollout a beginning of what it was"
    )
