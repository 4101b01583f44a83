"""Disks that are full, read-only, locked, slow or broken for a while: nobody loses what they were answered."""

from __future__ import annotations

import asyncio
import errno
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turnstile.cli import app

pytestmark = pytest.mark.timeout(300)
Figures = Callable[[str, object], None]


async def survives(
    siege: Any, wrong: Callable[[], object], right: Callable[[], object], record_property: Figures
) -> None:
    """All that must hold when a disk is bad for a while."""
    files = siege.server.open_files()
    await siege.under(wrong, right)
    await siege.settled(files)
    siege.server.kill()
    refusals = siege.crowd.refusals
    record_property("figures", figures_of(siege))
    assert set(refusals) <= {"503 store_error", "200 store_error"}, refusals
    assert siege.breaches() == []
    assert siege.tracebacks() == []


def figures_of(siege: Any) -> str:
    crowd = siege.crowd
    return f"{len(crowd.seen)} answers, {len(crowd.finished)} rollouts; refused meanwhile: {dict(crowd.refusals)}"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB in memory."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mounted)], capture_output=True, text=True
    )
    if done.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def fill(ballast: Path) -> None:
    """Take all the room that is left."""
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as full:
                assert full.errno == errno.ENOSPC


async def test_a_disk_that_is_full_for_a_while_costs_nothing_that_was_answered(
    besieged: Callable[..., Any], small_disk: Path, record_property: Figures
) -> None:
    ballast = small_disk / "ballast"
    siege = besieged(small_disk / "store")
    await survives(siege, lambda: fill(ballast), ballast.unlink, record_property)


async def test_a_file_that_may_not_grow_for_a_while_costs_nothing_that_was_answered(
    besieged: Callable[..., Any], tmp_path: Path, record_property: Figures
) -> None:
    siege = besieged(tmp_path / "store")
    wal = tmp_path / "store" / "journal.sqlite3-wal"
    _, hard = resource.prlimit(siege.server.pid, resource.RLIMIT_FSIZE)
    await survives(
        siege,
        lambda: resource.prlimit(siege.server.pid, resource.RLIMIT_FSIZE, (min(4096, wal.stat().st_size), hard)),
        lambda: resource.prlimit(siege.server.pid, resource.RLIMIT_FSIZE, (hard, hard)),
        record_property,
    )


@pytest.mark.parametrize(
    ("durability", "order"),
    [
        ("process", {"write_errno": errno.ENOSPC}),
        ("process", {"write_errno": errno.EROFS}),
        ("process", {"write_errno": errno.EIO}),
        ("power", {"write_errno": errno.ENOSPC}),
        ("power", {"sync_errno": errno.EIO}),
    ],
    ids=["full", "read-only", "broken", "full, synced", "no sync"],
)
async def test_a_disk_that_refuses_for_a_while_costs_nothing_that_was_answered(
    besieged: Callable[..., Any],
    bad_disk: Callable[..., Any],
    tmp_path: Path,
    record_property: Figures,
    durability: str,
    order: dict[str, int],
) -> None:
    disk = bad_disk(tmp_path / "store")
    siege = besieged(tmp_path / "store", disk.environment, "--durability", durability)
    await survives(siege, lambda: disk.order(**order), disk.order, record_property)


@pytest.mark.parametrize(
    ("durability", "order"),
    [("process", {"write_ms": 30}), ("power", {"sync_ms": 300})],
    ids=["slow writes", "slow syncs"],
)
async def test_a_slow_disk_delays_answers_and_refuses_none(
    besieged: Callable[..., Any],
    bad_disk: Callable[..., Any],
    tmp_path: Path,
    durability: str,
    order: dict[str, int],
) -> None:
    disk = bad_disk(tmp_path / "store")
    siege = besieged(tmp_path / "store", disk.environment, "--durability", durability)
    disk.order(**order)
    async with siege.talking():
        await siege.goes_on()
        # Whoever asks how it is is answered by a loop that no disk holds up.
        assert (await siege.get("/healthz")).status_code == 200
    siege.server.kill()
    assert siege.crowd.refusals == {}
    assert siege.breaches() == []


async def test_a_journal_that_another_program_holds_locked_costs_nothing_that_was_answered(
    besieged: Callable[..., Any], tmp_path: Path, record_property: Figures
) -> None:
    siege = besieged(tmp_path / "store")
    other = sqlite3.connect(tmp_path / "store" / "journal.sqlite3", isolation_level=None, check_same_thread=False)
    other.execute("PRAGMA busy_timeout = 60000")
    await survives(siege, lambda: other.execute("BEGIN IMMEDIATE"), lambda: other.execute("ROLLBACK"), record_property)
    other.close()


def printed(arguments: list[str]) -> tuple[int, str]:
    """A program's exit code, and what it printed."""
    command = [sys.executable, "-m", "turnstile.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def read_only() -> Iterator[Callable[[Path, Path], None]]:
    """Mounts a folder in another place where it cannot be written, by nobody."""
    mounted: list[Path] = []

    def mount(folder: Path, place: Path) -> None:
        place.mkdir()
        for command in (["mount", "--bind", str(folder), str(place)], ["mount", "-o", "remount,ro,bind", str(place)]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"nothing can be mounted read-only here: {done.stderr.strip()}")
            mounted[:] = [place]

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_store_on_a_read_only_disk_is_refused_by_a_server_and_read_by_everything_else(
    besieged: Callable[..., Any], read_only: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    siege = besieged(tmp_path / "store")
    async with siege.talking(agents=2):
        await siege.until(lambda: len(siege.crowd.finished) >= 2)
    siege.server.kill()
    archive, out, runner = tmp_path / "archive", tmp_path / "out.jsonl", CliRunner()
    read_only(siege.store, archive)
    model = ["--engine", siege.engine.url, "--model", "m", "--tokenizer", str(siege.model)]
    checked = runner.invoke(app, ["store", "check", str(archive)])
    exported = runner.invoke(app, ["export", str(archive), "-o", str(out)])
    validated = runner.invoke(app, ["validate", str(out)])
    refused = await asyncio.to_thread(printed, ["serve", *model, "--store", str(archive), "--port", "0"])
    assert [each.output for each in (checked, exported, validated) if each.exit_code != 0] == []
    assert refused == (
        1,
        f"turnstile: Cannot open the store's lock `{archive}/lock`: Read-only file system. "
        "Make the store's directory writable for this user.\n",
    )
