"""An attempt goes by a tombstone at once, and its records in small steps; nothing of it is silent."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

from turnstile.conversation import Image, Message, Role
from turnstile.errors import StoreError
from turnstile.reasons import DeleteReason
from turnstile.store import Journal, Reader
from turnstile.store.deletion import SWEPT_RECORDS, Deletion, Kept, Standing, Swept, Unexported, delete, sweep
from turnstile.store.exports import ExportMark, mark
from turnstile.store.tombstones import Tombstone


@pytest.fixture
def told(make):
    return Deletion(make.at(100), DeleteReason.ASKED)


async def closed(journal, make, rollout_id, attempt=1, calls=1):
    await journal.append(make.opened(rollout_id, attempt))
    for number in range(calls):
        await journal.append(make.started(rollout_id, f"c{number}"))
        await journal.append(make.committed(rollout_id, f"c{number}"))
    await journal.append(make.finished(rollout_id))


def exported(journal, make, rollout_id, attempt=1):
    return journal.change(lambda at: mark(at, [ExportMark(rollout_id, attempt, "trainer", make.at(20))]))


async def test_an_exported_attempt_is_deleted_and_its_tombstone_says_what_it_was(journal, tmp_path, make, told):
    await closed(journal, make, "a")
    exported(journal, make, "a")
    (stone,) = journal.change(lambda at: delete(at, "a", None, told))
    with Reader.open(tmp_path) as reader:
        assert (reader.rollout("a"), reader.deleted("a"), reader.tombstones()) == (None, stone, [stone])
    assert stone == Tombstone(
        number=1,
        rollout_id="a",
        attempt=1,
        status="completed",
        opened_at=make.at(0),
        finished_at=make.at(9),
        deleted_at=make.at(100),
        reason=DeleteReason.ASKED,
        exported_at=make.at(20),
        exported_to="trainer",
        calls=1,
        turns=1,
        sampled_tokens=2,
    )


async def test_an_open_attempt_is_never_deleted(journal, make, told):
    await journal.append(make.opened("a"))
    how = Deletion(told.deleted_at, told.reason, Unexported.DELETE)
    assert journal.change(lambda at: delete(at, "a", None, how)) == Kept(1, Standing.OPEN)


async def test_an_attempt_that_nobody_has_is_deleted_only_if_that_is_said(journal, make, told):
    await closed(journal, make, "a")
    assert journal.change(lambda at: delete(at, "a", None, told)) == Kept(1, Standing.UNEXPORTED)
    how = Deletion(told.deleted_at, told.reason, Unexported.DELETE)
    (stone,) = journal.change(lambda at: delete(at, "a", None, how))
    assert (stone.exported_at, stone.exported_to) == (None, None)


async def test_all_attempts_go_together_or_none(journal, tmp_path, make, told):
    for attempt in (1, 2):
        await closed(journal, make, "a", attempt)
    exported(journal, make, "a", 1)
    assert journal.change(lambda at: delete(at, "a", None, told)) == Kept(2, Standing.UNEXPORTED)
    exported(journal, make, "a", 2)
    assert [each.attempt for each in journal.change(lambda at: delete(at, "a", None, told))] == [1, 2]


async def test_one_attempt_goes_by_its_number_also_while_a_later_one_is_open(journal, tmp_path, make, told):
    await closed(journal, make, "a", 1)
    exported(journal, make, "a", 1)
    await journal.append(make.opened("a", 2))
    assert [each.attempt for each in journal.change(lambda at: delete(at, "a", 1, told))] == [1]
    with Reader.open(tmp_path) as reader:
        assert list(reader.records("a")) == [make.opened("a", 2)]


async def test_what_was_never_there_leaves_no_tombstone(journal, told):
    assert journal.change(lambda at: delete(at, "a", None, told)) == ()


async def test_a_deleted_id_goes_on_with_the_next_attempt_and_the_next_number(journal, tmp_path, make, told):
    await closed(journal, make, "a")
    exported(journal, make, "a")
    journal.change(lambda at: delete(at, "a", None, told))
    with pytest.raises(StoreError) as refused:
        await journal.append(make.opened("a", 1))
    assert (refused.value.code, refused.value.remedy) == ("attempt_exists", "Open attempt 2")
    await journal.append(make.opened("a", 2))
    with Reader.open(tmp_path) as reader:
        assert [(each.number, each.attempt) for each in reader.rollouts()] == [(2, 2)]


async def test_nothing_is_written_to_an_attempt_that_was_deleted(journal, make, told):
    await closed(journal, make, "a")
    exported(journal, make, "a")
    journal.change(lambda at: delete(at, "a", None, told))
    for attempt in (1, None):
        with pytest.raises(StoreError) as refused:
            await journal.append(make.failed("a", "c0"), attempt)
        assert refused.value.code in ("rollout_deleted", "rollout_unknown")


async def test_records_are_swept_a_few_at_a_time_and_no_others(journal, tmp_path, make, told):
    await closed(journal, make, "a", calls=SWEPT_RECORDS)
    await closed(journal, make, "b")
    exported(journal, make, "a")
    journal.change(lambda at: delete(at, "a", None, told))
    steps = []
    while not steps or not steps[-1].is_done:
        steps.append(journal.change(sweep))
    counts = [step.records for step in steps]
    assert (max(counts), sum(counts)) == (SWEPT_RECORDS, 2 * SWEPT_RECORDS + 2)
    with Reader.open(tmp_path) as reader:
        assert len(list(reader.records("b"))) == 4


async def test_sweeping_goes_on_where_a_killed_process_left_off(tmp_path, make, told):
    journal = Journal.open(tmp_path)
    await closed(journal, make, "a", calls=SWEPT_RECORDS)
    exported(journal, make, "a")
    journal.change(lambda at: delete(at, "a", None, told))
    assert journal.change(sweep).records == SWEPT_RECORDS
    journal.close()
    again = Journal.open(tmp_path)
    while not again.change(sweep).is_done:
        pass
    assert again.change(lambda at: at.execute("SELECT count(*) FROM records").fetchone()) == (0,)
    again.close()


async def test_a_swept_attempt_says_which_blobs_nobody_names_any_more(journal, make, told):
    def with_image(rollout_id, *names):
        images = tuple(Image(name * 64, "image/png") for name in names)
        started = make.started(rollout_id, "c0")
        return type(started)(
            **{
                **{field: getattr(started, field) for field in started.__struct_fields__},
                "new_M": (Message(Role.USER, images),),
            }
        )

    for name, images in (("a", "12"), ("b", "2")):
        await journal.append(make.opened(name))
        await journal.append(with_image(name, *images))
        await journal.append(make.failed(name, "c0"))
        await journal.append(make.finished(name))
        exported(journal, make, name)
    journal.change(lambda at: delete(at, "a", None, told))
    steps = [journal.change(sweep) for _ in range(3)]
    assert steps == [
        Swept(4, (), is_done=False),
        Swept(0, ("1" * 64,), is_done=False),
        Swept(0, (), is_done=True),
    ]


async def test_a_reader_in_the_middle_of_an_attempt_that_goes_is_told(journal, tmp_path, make, told):
    await closed(journal, make, "a", calls=100)
    exported(journal, make, "a")
    with Reader.open(tmp_path) as reader:
        reading = reader.records("a")
        next(reading)
        await asyncio.to_thread(journal.change, lambda at: delete(at, "a", None, told))
        while not journal.change(sweep).is_done:
            pass
        with pytest.raises(StoreError) as refused:
            list(reading)
    assert refused.value.code == "rollout_deleted"


async def test_a_change_that_refuses_takes_nothing_with_it(journal, tmp_path, make):
    def half(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO meta VALUES ('half', 'done')")
        raise StoreError("No", "Stop")

    with pytest.raises(StoreError, match="No"):
        journal.change(half)
    await journal.append(make.opened("a"))
    with Reader.open(tmp_path) as reader:
        assert reader.metas() == {}
