"""From a damaged store everything that is whole is kept as it was, and what is not is named."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import CallerError, StoreError
from turnstile.history.forest import Forest
from turnstile.reports.salvage import Outcome, Salvaged, Salvager
from turnstile.reports.store_check import StoreCheck, Weight
from turnstile.store import Journal, Reader
from turnstile.store.exports import ExportMark, mark_beside
from turnstile.trajectory.assemble import assemble

NOW = datetime(2026, 12, 2, tzinfo=UTC)
COUNT = 24


@pytest.fixture(scope="module")
def written(wire_up: Callable[..., Any], tools_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a real server left: many rollouts of two turns, all but the last closed."""
    store = tmp_path_factory.mktemp("written")
    with wire_up(tools_folder, ["<|im_end|>"], store=store) as room:
        for number in range(COUNT):
            room.script("Hello.<|im_end|>", "Bye.<|im_end|>")
            agent = room.agent(rollout_id=f"r{number}", group_id=f"g{number % 3}")
            first = agent.say(f"Hi {number}" * 40)
            agent.say(f"Hi {number}" * 40, first.message, "Bye")
            if number < COUNT - 1:
                agent.handle.finish(reward=float(number))
    mark_beside(store, [ExportMark("r3", 1, "x", NOW)])
    # Nothing is to be only in the write-ahead log: what is damaged here is the database.
    Journal.open(store).close()
    return store


@pytest.fixture
def store(written: Path, tmp_path: Path) -> Path:
    return shutil.copytree(written, tmp_path / "store")


def salvaged(store: Path) -> tuple[Any, list[Salvaged], Path]:
    target, told = store.with_name("saved"), list[Salvaged]()
    shutil.rmtree(target, ignore_errors=True)
    return Salvager(store, target, lambda: NOW, told.append).run(), told, target


def test_another_programs_database_is_refused_though_its_rows_look_like_entries_of_ours(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with contextlib.closing(sqlite3.connect(foreign / "journal.sqlite3", isolation_level=None)) as connection:
        connection.execute("PRAGMA application_id = 77")
        connection.execute("CREATE TABLE people (number INTEGER PRIMARY KEY, name TEXT, age INTEGER)")
        connection.execute("CREATE INDEX people_by_age ON people (name, age, number)")
        connection.executemany("INSERT INTO people (name, age) VALUES (?, ?)", [("ada", 36), ("ada", 36), ("alan", 41)])
    with pytest.raises(StoreError, match="is no journal of Turnstile's"):
        salvaged(foreign)
    assert not (tmp_path / "saved").exists()


def histories(store: Path) -> dict[tuple[str, int], list[Any]]:
    with Reader.open(store) as reader:
        return {
            (each.rollout_id, each.attempt): list(reader.records(each.rollout_id, each.attempt))
            for each in reader.every_rollout()
        }


def errors(store: Path) -> list[str]:
    with Reader.open(store) as reader:
        return [str(each) for each in StoreCheck(store, reader).findings() if each.weight is Weight.ERROR]


def test_a_whole_store_is_kept_whole(store: Path) -> None:
    done, told, target = salvaged(store)
    assert (done.whole, done.is_complete, told) == (COUNT, True, [])
    assert histories(target) == histories(store)
    assert errors(target) == []
    with Reader.open(target) as reader:
        assert [each.rollout_id for each in reader.every_rollout() if each.exported_at] == ["r3"]


@pytest.mark.parametrize("seed", range(12))
def test_after_random_damage_what_is_whole_is_as_it_was_and_the_rest_is_named(
    written: Path, store: Path, seed: int
) -> None:
    before, rng = histories(written), random.Random(seed)
    file = store / "journal.sqlite3"
    content = bytearray(file.read_bytes())
    match seed % 3:
        case 0:
            for _ in range(12):
                content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        case 1:
            page = rng.randrange(1, len(content) // 4096)
            content[page * 4096 : (page + 1) * 4096] = rng.randbytes(4096)
        case _:
            del content[rng.randrange(len(content) // 3, len(content)) :]
    file.write_bytes(content)
    done, told, target = salvaged(store)
    after = histories(target)
    named = {each.place for each in told}
    for key, records in before.items():
        place = f"{key[0]}#{key[1]}"
        if place not in named and key in after:
            assert after[key] == records, place
        if key not in after and place not in named:
            # Only where both the records and every index entry of it are gone can it not be named.
            assert seed % 3 != 0
    assert set(after) <= set(before)
    assert done.whole == sum(after.get(key) == records for key, records in before.items())
    assert errors(target) == []


def test_an_attempt_that_lost_a_record_is_cut_closed_and_withheld(store: Path) -> None:
    with sqlite3.connect(store / "journal.sqlite3") as connection:
        connection.execute("PRAGMA secure_delete = ON")
        (seq,) = connection.execute(
            "SELECT seq FROM records WHERE rollout_id = 'r5' AND kind = 'turn_committed' ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        connection.execute("UPDATE records SET body = x'00' WHERE seq = ?", (seq,))
    connection.close()
    done, told, target = salvaged(store)
    assert (done.whole, done.cut, done.lost) == (COUNT - 1, 1, 0)
    assert [str(each) for each in told] == [f"cut r5#1 5 records are kept; 1 are gone ({seq})"]
    with Reader.open(target) as reader:
        rollout = assemble(Forest.of(reader.records("r5")))
    assert (rollout.status, rollout.trainable, rollout.mask_reasons, rollout.reward) == (
        "aborted",
        False,
        ("store_damaged",),
        None,
    )
    assert rollout.error is not None
    assert rollout.error.type == "store_damaged"
    assert errors(target) == []


def test_a_blob_that_is_gone_or_changed_is_named(store: Path) -> None:
    (blob,) = (store / "blobs").glob("??/*")
    blob.write_bytes(b"other")
    done, told, _ = salvaged(store)
    assert (done.blobs, done.blobs_lost) == (0, 1)
    assert [(each.outcome, each.place) for each in told] == [(Outcome.LOST, blob.name)]


def test_nothing_is_written_over(store: Path, tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "mine").touch()
    with pytest.raises(CallerError, match="is not empty"):
        Salvager(store, tmp_path / "saved", lambda: NOW, [].append).run()


def test_pages_that_are_gone_are_told_also_where_no_attempt_is_left(store: Path) -> None:
    with sqlite3.connect(store / "journal.sqlite3") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.close()
    file = store / "journal.sqlite3"
    file.write_bytes(file.read_bytes()[:100])
    done, told, _ = salvaged(store)
    assert not done.is_complete
    assert [str(each) for each in told] == [f"lost journal {pages - 1} pages at the end of the file are gone"]
