"""The journal's promises: durable when told, in order, all or nothing, one writer, and it comes back after errors."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from turnstile.errors import StoreError
from turnstile.journal import CallFailed, encode
from turnstile.store import Journal, Reader

CHILD = textwrap.dedent(
    """
    import asyncio, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from turnstile.journal import CallFailed, RolloutOpened
    from turnstile.reasons import FailReason
    from turnstile.store import Journal

    async def caller(journal, rollout_id, first):
        for number in range(first, first + 100_000):
            problem = "x" * (number * 37 % 9000)
            failed = CallFailed(rollout_id, str(number), datetime.now(UTC), FailReason.INTERRUPTED, problem)
            await journal.append(failed)
            sys.stdout.write(f"{rollout_id} {number}\\n")
            sys.stdout.flush()

    async def main(directory, firsts):
        journal = Journal.open(Path(directory))
        async with asyncio.TaskGroup() as tasks:
            for rollout_id, first in enumerate(firsts):
                if first == 0:
                    await journal.append(RolloutOpened(str(rollout_id), 1, datetime.now(UTC)))
                tasks.create_task(caller(journal, str(rollout_id), first))

    asyncio.run(main(sys.argv[1], [int(first) for first in sys.argv[2:]]))
    """
)


def told_durable(lines: list[str]) -> dict[str, int]:
    """How many records of each rollout were acknowledged; a last line without its end was never said."""
    told: dict[str, int] = {}
    for line in lines:
        if line.endswith("\n"):
            rollout_id, number = line.split()
            told[rollout_id] = int(number) + 1
    return told


def kept(directory: Path, rollout_id: str) -> list[int]:
    with Reader.open(directory) as reader:
        return [int(record.call_id) for record in reader.records(rollout_id) if isinstance(record, CallFailed)]


@pytest.mark.timeout(90)
def test_every_acknowledged_record_is_there_in_order_after_kill_9(tmp_path):
    pause = random.Random(20261201)
    firsts = [0, 0, 0]
    for _ in range(10):
        command = [sys.executable, "-c", CHILD, str(tmp_path), *map(str, firsts)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines = [child.stdout.readline()]
        killer = pause.uniform(0.0, 0.15)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(killer)
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.readlines()
        child.stdout.close()
        assert child.wait() == -signal.SIGKILL
        told = told_durable(lines)
        for rollout, first in enumerate(firsts):
            numbers = kept(tmp_path, str(rollout))
            assert numbers == list(range(len(numbers)))
            assert len(numbers) >= max(told.get(str(rollout), 0), first)
            firsts[rollout] = len(numbers)
    assert sum(firsts) > 100


async def test_an_append_is_durable_when_it_returns(tmp_path, make):
    journal = Journal.open(tmp_path)
    await journal.append(make.opened("r"))
    with Reader.open(tmp_path) as reader:
        assert list(reader.records("r")) == [make.opened("r")]
    journal.close()


async def test_records_of_one_caller_keep_the_order_of_its_appends(tmp_path, make):
    journal = Journal.open(tmp_path)
    await journal.append(make.opened("r"))
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(journal.append(make.failed("r", str(number))))
    journal.close()
    assert kept(tmp_path, "r") == list(range(200))


async def test_records_that_are_appended_together_are_all_there_or_none(tmp_path, make):
    journal = Journal.open(tmp_path)
    await journal.append_all([make.opened("r"), make.started("r", "c1")])
    with pytest.raises(StoreError) as refused:
        await journal.append_all([make.committed("r", "c1"), make.opened("r")])
    assert refused.value.code == "attempt_exists"
    with Reader.open(tmp_path) as reader:
        assert list(reader.records("r")) == [make.opened("r"), make.started("r", "c1")]
        assert reader.rollout("r").turns == 0
    journal.close()


async def test_a_record_that_is_refused_takes_no_other_callers_record_with_it(tmp_path, make):
    journal = Journal.open(tmp_path)
    outcomes = await asyncio.gather(
        journal.append(make.opened("r")),
        journal.append(make.failed("never-opened", "c1")),
        journal.append(make.failed("r", "c2")),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [int, StoreError, int]
    assert outcomes[1].code == "rollout_unknown"
    with Reader.open(tmp_path) as reader:
        assert list(reader.records("r")) == [make.opened("r"), make.failed("r", "c2")]
    journal.close()


async def test_close_writes_what_waits(tmp_path, make):
    journal = Journal.open(tmp_path)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(journal.append(make.opened("r")))
        await asyncio.sleep(0)
        journal.close()
    assert waiting.result() == len(encode(make.opened("r")))
    with Reader.open(tmp_path) as reader:
        assert reader.latest_attempt("r") == 1


async def test_an_append_after_close_is_refused(tmp_path, make):
    journal = Journal.open(tmp_path)
    journal.close()
    journal.close()
    with pytest.raises(StoreError, match="is closed"):
        await journal.append(make.opened("r"))


async def test_a_caller_is_cancelled_only_when_its_record_is_durable(tmp_path, make):
    journal = Journal.open(tmp_path)
    await journal.append(make.opened("r"))
    seen_at_cancel = []

    async def caller():
        try:
            await journal.append(make.failed("r", "7"))
        except asyncio.CancelledError:
            seen_at_cancel.extend(kept(tmp_path, "r"))
            raise

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(caller())
        await asyncio.sleep(0)
        waiting.cancel()
    assert (waiting.cancelled(), seen_at_cancel) == (True, [7])
    journal.close()


async def test_a_cancelled_caller_whose_record_was_refused_is_told_so(tmp_path, make):
    journal = Journal.open(tmp_path)

    async def caller():
        with pytest.raises(StoreError, match="was never opened"):
            await journal.append(make.failed("r", "7"))
        return "told"

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(caller())
        await asyncio.sleep(0)
        waiting.cancel()
    assert waiting.result() == "told"
    journal.close()


async def test_a_locked_database_is_an_error_with_a_remedy_and_writing_goes_on_when_it_is_free(tmp_path, make):
    journal = Journal.open(tmp_path, patience_s=0.05)
    other = sqlite3.connect(tmp_path / "journal.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError) as locked:
        await journal.append(make.opened("r"))
    assert locked.value.remedy == "Close the program that has it open for writing"
    other.execute("ROLLBACK")
    other.close()
    await journal.append(make.opened("r"))
    journal.close()


async def test_a_full_disk_reaches_every_waiting_append_and_writing_goes_on_when_there_is_room(tmp_path, make):
    journal = Journal.open(tmp_path)
    await journal.append(make.opened("r"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        big = [make.started("r", str(number), added=50_000) for number in range(3)]
        outcomes = await asyncio.gather(*map(journal.append, big), return_exceptions=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
    assert all(outcome.remedy for outcome in outcomes)
    await journal.append(make.failed("r", "9"))
    journal.close()
    assert kept(tmp_path, "r") == [9]


async def test_a_late_record_is_filed_under_the_attempt_that_it_is_appended_for(tmp_path, make):
    journal = Journal.open(tmp_path)
    first = [make.opened("r"), make.started("r", "c1")]
    await journal.append_all([*first, make.finished("r"), make.opened("r", attempt=2)])
    await journal.append(make.failed("r", "c1"), attempt=1)
    with Reader.open(tmp_path) as reader:
        assert list(reader.records("r", attempt=1)) == [*first, make.finished("r"), make.failed("r", "c1")]
        assert list(reader.records("r")) == [make.opened("r", attempt=2)]
    journal.close()


async def test_a_fact_about_the_store_is_kept_and_replaced(tmp_path):
    journal = Journal.open(tmp_path)
    await journal.set_meta("policy_version", "3")
    await journal.set_meta("policy_version", "4")
    journal.close()
    with Reader.open(tmp_path) as reader:
        assert (reader.meta("policy_version"), reader.meta("other")) == ("4", None)


async def test_appends_from_two_event_loops_are_both_answered(tmp_path, make):
    journal = Journal.open(tmp_path)
    await journal.append(make.opened("r"))
    await asyncio.to_thread(asyncio.run, journal.append(make.failed("r", "1")))
    await journal.append(make.failed("r", "2"))
    journal.close()
    assert kept(tmp_path, "r") == [1, 2]


async def test_a_reopened_store_goes_on_where_it_was(tmp_path, make):
    records = [make.opened("r"), make.failed("r", "1"), make.failed("r", "2")]
    for record in records:
        journal = Journal.open(tmp_path)
        await journal.append(record)
        journal.close()
    with Reader.open(tmp_path) as reader:
        assert list(reader.records("r")) == records
