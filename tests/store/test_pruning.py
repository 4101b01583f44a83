"""Retention takes the oldest first, never what nobody has unless that is said, and never what is about to be named."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from turnstile.conversation import Image, Message, Role
from turnstile.reasons import DeleteReason
from turnstile.store import Blobs, Reader
from turnstile.store.deletion import Unexported
from turnstile.store.exports import ExportMark, mark
from turnstile.store.pruning import BLOB_QUIET_S, Keep, Pruned, Pruner

DAY_S = 86_400.0


@pytest.fixture
def pruner(journal, tmp_path, make):
    return Pruner(tmp_path, journal.change, lambda: make.at(0) + timedelta(days=10), lambda: True)


class Stock:
    """Closed rollouts, by how many days ago they were closed."""

    def __init__(self, journal, make):
        self.journal = journal
        self.make = make

    async def put(self, name, days_ago, *, left=True, images=(), added=3):
        finished = msgspec.structs.replace(
            self.make.finished(name), finished_at=self.make.at(0) + timedelta(days=10 - days_ago)
        )
        shown = (Message(Role.USER, tuple(Image(sha256, "image/png") for sha256 in images)),)
        started = msgspec.structs.replace(self.make.started(name, "c0", added=added), new_M=shown)
        for record in (self.make.opened(name), started, self.make.failed(name, "c0"), finished):
            await self.journal.append(record)
        if left:
            self.journal.change(lambda at: mark(at, [ExportMark(name, 1, "x", self.make.at(0))]))


@pytest.fixture
def stock(journal, make):
    return Stock(journal, make)


def names(directory):
    with Reader.open(directory) as reader:
        return [each.rollout_id for each in reader.rollouts()]


def went(pruner, keep):
    gone = []
    pruned = pruner.prune(keep, gone.append)
    assert pruned.attempts == len(gone)
    return [(due.rollout_id, due.reason) for due in gone]


async def test_what_was_closed_longer_ago_than_is_kept_goes_and_the_rest_stays(stock, pruner, tmp_path):
    for name, days_ago in (("new", 1), ("old", 8), ("older", 9)):
        await stock.put(name, days_ago)
    assert went(pruner, Keep(for_s=7 * DAY_S)) == [("older", DeleteReason.AGE), ("old", DeleteReason.AGE)]
    assert names(tmp_path) == ["new"]


async def test_what_nobody_has_stays_unless_it_is_said_to_go(stock, pruner, tmp_path):
    await stock.put("mine", 8, left=False)
    assert went(pruner, Keep(for_s=7 * DAY_S)) == []
    assert went(pruner, Keep(for_s=7 * DAY_S, unexported=Unexported.DELETE)) == [("mine", DeleteReason.AGE)]


async def test_an_open_rollout_never_goes(stock, journal, make, pruner, tmp_path):
    await journal.append(make.opened("open"))
    assert went(pruner, Keep(for_s=0.0, size_bytes=0, unexported=Unexported.DELETE)) == []


async def test_a_store_that_is_too_large_loses_its_oldest_until_it_fits(stock, pruner, tmp_path):
    for number in range(6):
        await stock.put(f"r{number}", 9 - number, added=50_000)
    size = 4096 * pruner._transact(lambda at: at.execute("PRAGMA page_count").fetchone())[0]
    assert went(pruner, Keep(size_bytes=size - 300_000)) == [("r0", DeleteReason.SIZE), ("r1", DeleteReason.SIZE)]
    assert went(pruner, Keep(size_bytes=size - 300_000)) == []


async def test_images_count_as_room_that_is_won(stock, pruner, tmp_path):
    blobs = Blobs(tmp_path)
    for number in range(4):
        await stock.put(f"r{number}", 9 - number, images=[blobs.put(bytes([number]) * 1_000_000)])
    assert went(pruner, Keep(size_bytes=2_500_000)) == [("r0", DeleteReason.SIZE), ("r1", DeleteReason.SIZE)]


async def test_nothing_goes_if_nothing_is_said(stock, pruner, tmp_path):
    await stock.put("old", 9)
    assert (went(pruner, Keep()), names(tmp_path)) == ([], ["old"])


async def test_what_is_due_can_be_looked_at_first(stock, pruner, tmp_path):
    await stock.put("old", 9)
    assert [each.rollout_id for each in pruner.due(Keep(for_s=DAY_S))] == ["old"]
    assert names(tmp_path) == ["old"]


async def test_a_blob_goes_with_the_last_that_named_it_once_nobody_asks_for_it(stock, pruner, tmp_path, make):
    blobs = Blobs(tmp_path)
    alone, shared, fresh = (blobs.put(name) for name in (b"alone", b"shared", b"fresh"))
    await stock.put("old", 9, images=[alone, shared, fresh])
    await stock.put("new", 1, images=[shared])
    long_ago = make.at(0).timestamp()
    for sha256 in (alone, shared):
        os.utime(tmp_path / "blobs" / sha256[:2] / sha256, (long_ago, long_ago))
    just_now = long_ago + 10 * DAY_S - BLOB_QUIET_S / 2
    os.utime(tmp_path / "blobs" / fresh[:2] / fresh, (just_now, just_now))
    pruned = pruner.prune(Keep(for_s=7 * DAY_S), [].append)
    pruner.tidy(pruned)
    assert pruned.blobs == 1
    assert [blobs.has(each) for each in (alone, shared, fresh)] == [False, True, True]


async def test_a_models_files_stay(journal, pruner, tmp_path, make):
    card = Blobs(tmp_path).put(b"a tokenizer")
    await journal.set_meta("model_files:x", card)
    os.utime(tmp_path / "blobs" / card[:2] / card, (0, 0))
    pruner.tidy(Pruned())
    assert Blobs(tmp_path).has(card)


async def test_a_blob_that_was_leaving_when_its_remover_died_comes_back_if_it_is_named(stock, pruner, tmp_path):
    sha256 = Blobs(tmp_path).put(b"an image")
    await stock.put("new", 1, images=[sha256])
    file = tmp_path / "blobs" / sha256[:2] / sha256
    file.rename(file.with_name(f".draft-{sha256}"))
    pruner.tidy(Pruned())
    assert Blobs(tmp_path).get(sha256) == b"an image"


async def test_work_that_is_told_to_stop_is_gone_on_with_later(stock, journal, tmp_path, make):
    await stock.put("old", 9)
    stopped = Pruner(tmp_path, journal.change, lambda: make.at(0) + timedelta(days=10), lambda: False)
    assert stopped.prune(Keep(for_s=DAY_S), [].append).records == 0
    going = Pruner(tmp_path, journal.change, lambda: make.at(0) + timedelta(days=10), lambda: True)
    assert going.prune(Keep(), [].append).records == 4


async def test_free_pages_go_back_to_the_disk_but_for_some_to_write_on(stock, pruner, journal, tmp_path):
    for number in range(10):
        await stock.put(f"r{number}", 9, added=300_000)
    pruner.prune(Keep(for_s=DAY_S), [].append)
    free, pages = journal.change(
        lambda at: (at.execute("PRAGMA freelist_count").fetchone()[0], at.execute("PRAGMA page_count").fetchone()[0])
    )
    assert free == 1024
    assert pages < 1200


_PRUNES = """
import pathlib, sys
from datetime import UTC, datetime
from turnstile.store.beside import beside, committed
from turnstile.store.pruning import Keep, Pruner
directory = pathlib.Path(sys.argv[1])
with beside(directory) as connection:
    def transact(step):
        with committed(connection):
            return step(connection)
    steps = [0]
    def go_on():
        steps[0] += 1
        print(steps[0], flush=True)
        sys.stdin.readline()
        return True
    Pruner(directory, transact, lambda: datetime.now(UTC), go_on).prune(Keep(for_s=0.0), [].append)
"""


def killed_behind(steps, directory):
    """Prune in another process, which is killed when it has taken some steps."""
    child = subprocess.Popen(
        [sys.executable, "-c", _PRUNES, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        for _ in range(steps):
            assert child.stdout.readline()
            child.stdin.write("\n")
            child.stdin.flush()
        child.kill()


async def test_a_prune_that_is_killed_again_and_again_comes_to_its_end_and_costs_nothing_else(stock, journal, tmp_path):
    for number in range(8):
        await stock.put(f"r{number}", 20, left=number % 2 == 0)
    for steps in (1, 2, 3):
        await asyncio.to_thread(killed_behind, steps, tmp_path)
        with Reader.open(tmp_path) as reader:
            for each in reader.rollouts():
                assert len(list(reader.records(each.rollout_id))) == 4
    Pruner(tmp_path, journal.change, lambda: datetime.now(UTC), lambda: True).prune(Keep(for_s=0.0), [].append)
    assert names(tmp_path) == ["r1", "r3", "r5", "r7"]
    assert journal.change(lambda at: at.execute("SELECT count(*) FROM records").fetchone()) == (16,)
    with Reader.open(tmp_path) as reader:
        assert [each.rollout_id for each in reader.tombstones()] == ["r0", "r2", "r4", "r6"]
