"""What a reader sees: whole commits, in order, by rollout, and a clear word where the bytes are damaged."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from turnstile.errors import StoreError
from turnstile.generation import BridgeKind as Bridge
from turnstile.generation import Forked, Rerendered, Spliced
from turnstile.journal import RolloutStatus
from turnstile.reasons import ForkReason, RerenderReason
from turnstile.store import Journal, Reader, RolloutSummary


@pytest.fixture
def reader(tmp_path, journal):
    with Reader.open(tmp_path) as reader:
        yield reader


async def test_a_summary_counts_what_the_records_say(journal, reader, make):
    await journal.append_all(
        [
            make.opened("r", group_id="g", task_id="t"),
            make.started("r", "c1"),
            make.committed("r", "c1", sampled=5),
            make.started("r", "c2", Spliced(Bridge.SENTINEL)),
            make.failed("r", "c2"),
            make.started("r", "c3", Forked(ForkReason.MESSAGE_EDITED)),
            make.committed("r", "c3", sampled=7),
            make.started("r", "c4", Rerendered(RerenderReason.TEMPLATE_ERROR)),
            make.finished("r", reward=0.5),
        ]
    )
    assert reader.rollout("r") == RolloutSummary(
        number=1,
        rollout_id="r",
        attempt=1,
        status=RolloutStatus.COMPLETED,
        opened_at=make.at(0),
        finished_at=make.at(9),
        group_id="g",
        task_id="t",
        calls=4,
        turns=2,
        failed_calls=1,
        forks=2,
        sampled_tokens=12,
        reward=0.5,
    )


async def test_a_listing_is_paged_in_the_order_of_opening_and_pages_never_shift(journal, reader, make):
    await journal.append_all([make.opened(str(number)) for number in range(5)])
    first = reader.rollouts(limit=2)
    await journal.append(make.opened("later"))
    rest = reader.rollouts(after=first[-1].number)
    assert [summary.rollout_id for summary in first + rest] == ["0", "1", "2", "3", "4", "later"]


async def test_a_listing_can_be_narrowed(journal, reader, make):
    await journal.append_all(
        [
            make.opened("a", group_id="g1", task_id="t1"),
            make.opened("b", group_id="g1", task_id="t2"),
            make.opened("c", group_id="g2", task_id="t1"),
            make.finished("b"),
        ]
    )
    found = [
        reader.rollouts(group_id="g1"),
        reader.rollouts(task_id="t1"),
        reader.rollouts(status=RolloutStatus.COMPLETED),
        reader.rollouts(group_id="g1", status=RolloutStatus.RUNNING),
        reader.rollouts(group_id="none"),
    ]
    assert [[summary.rollout_id for summary in page] for page in found] == [["a", "b"], ["a", "c"], ["b"], ["a"], []]


async def test_only_latest_attempts_that_still_run_are_open(journal, reader, make):
    await journal.append_all(
        [
            make.opened("ended"),
            make.finished("ended"),
            make.opened("again"),
            make.opened("again", attempt=2),
            make.opened("plain"),
        ]
    )
    assert [(summary.rollout_id, summary.attempt) for summary in reader.open_rollouts()] == [("again", 2), ("plain", 1)]


async def test_the_latest_attempt_is_read_unless_another_is_named(journal, reader, make):
    await journal.append_all([make.opened("r"), make.failed("r", "c1"), make.opened("r", attempt=2)])
    assert reader.latest_attempt("r") == 2
    assert list(reader.records("r")) == [make.opened("r", attempt=2)]
    assert list(reader.records("r", 1)) == [make.opened("r"), make.failed("r", "c1")]


async def test_a_rollout_that_is_not_there_has_no_records(reader):
    assert (list(reader.records("r")), reader.rollout("r"), reader.latest_attempt("r")) == ([], None, 0)


async def test_a_long_rollout_is_read_in_order_while_others_write_between(journal, reader, make):
    await journal.append_all([make.opened("r"), make.opened("other")])
    for number in range(150):
        await journal.append_all([make.failed("r", str(number)), make.failed("other", str(number))])
    records = list(reader.records("r"))
    assert records == [make.opened("r"), *(make.failed("r", str(number)) for number in range(150))]


async def test_a_record_whose_bytes_changed_is_named_and_the_ones_before_it_are_read(tmp_path, journal, make):
    await journal.append_all([make.opened("r"), make.committed("r", "c1"), make.failed("r", "c2")])
    journal.close()
    with sqlite3.connect(tmp_path / "journal.sqlite3") as connection:
        body = bytearray(connection.execute("SELECT body FROM records WHERE seq = 2").fetchone()[0])
        body[len(body) // 2] ^= 1
        connection.execute("UPDATE records SET body = ? WHERE seq = 2", (bytes(body),))
    connection.close()
    with Reader.open(tmp_path) as reader:
        records = reader.records("r")
        assert next(records) == make.opened("r")
        with pytest.raises(StoreError) as damaged:
            next(records)
    file = tmp_path / "journal.sqlite3"
    assert damaged.value.problem == (
        f"Record 2 of rollout `r` in `{file}` is damaged: its bytes are not the ones that were written"
    )


async def test_a_torn_file_is_an_error_that_names_it(tmp_path, journal, make):
    await journal.append(make.opened("r"))
    await journal.append_all([make.started("r", str(number), added=2000) for number in range(20)])
    journal.close()
    file = tmp_path / "journal.sqlite3"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(StoreError, match=f"Cannot .* in `{file}`: it is damaged"), Reader.open(tmp_path) as reader:
        list(reader.records("r"))


async def test_every_attempt_is_listed_once_however_many_pages_they_are(tmp_path, make):
    journal = Journal.open(tmp_path)
    await journal.append_all([make.opened(f"r{number}", group_id=f"g{number % 2}") for number in range(2001)])
    journal.close()
    with Reader.open(tmp_path) as reader:
        assert [each.rollout_id for each in reader.every_rollout()] == [f"r{number}" for number in range(2001)]
        assert [each.rollout_id for each in reader.every_rollout("g1")] == [f"r{n}" for n in range(1, 2001, 2)]


@pytest.fixture
def misled(tmp_path, make):
    """A store in which the index of the records leads to each other one, behind which it should have gone on."""

    async def mislead() -> Reader:
        journal = Journal.open(tmp_path)
        await journal.append_all([make.opened("r"), make.started("r", "c1"), make.committed("r", "c1")])
        journal.close()
        with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite3", isolation_level=None)) as connection:
            connection.execute(
                "CREATE TABLE other (rollout_id TEXT, attempt INTEGER, seq INTEGER, row INTEGER PRIMARY KEY)"
            )
            connection.execute("CREATE INDEX other_index ON other (rollout_id, attempt, seq)")
            connection.execute("INSERT INTO other SELECT rollout_id, attempt, seq + 100, seq FROM records")
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute(
                "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'other_index') "
                "WHERE name = 'records_of_attempt'"
            )
        return Reader.open(tmp_path)

    return mislead


async def test_an_index_that_leads_back_is_damage_and_no_loop_without_end(misled):
    with await misled() as reader:
        assert reader.damage_met == ""
        with pytest.raises(StoreError) as damaged:
            for number, _ in enumerate(reader.records("r")):
                assert number < 10
        assert reader.damage_met == damaged.value.problem
    assert damaged.value.code == "record_damaged"
    assert damaged.value.problem.endswith("it comes behind record 3")


async def test_a_row_of_the_listing_that_cannot_be_is_damage(tmp_path, journal, make):
    await journal.append(make.opened("r"))
    journal.change(lambda connection: connection.execute("UPDATE rollouts SET status = 'bent'"))
    with Reader.open(tmp_path) as reader, pytest.raises(StoreError) as damaged:
        reader.rollouts()
    assert damaged.value.code == "row_damaged"
    assert "row (1, 'r', 1): Invalid enum value 'bent'" in damaged.value.problem
