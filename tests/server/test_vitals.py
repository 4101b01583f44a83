"""Why a server is degraded, and what is told when that changes."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from turnstile.engines.pool import EngineFigures
from turnstile.exchange.policy_log import EnginePolicy
from turnstile.server.lately import Lately, LoopLag
from turnstile.server.logs import Log, LogForm, logging_to, silent_log
from turnstile.server.vitals import (
    Vitals,
    dropped_lines,
    expired_holds,
    failed_reads,
    failed_writes,
    late_loop,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "log"


def told(path: Path) -> list[tuple[str, str, str]]:
    """The event, its level, and what it is about, of each line."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [(line["event"], line["level"], line.get("engine") or line.get("reason")) for line in lines]


def engine(name: str, problem: str = "") -> EngineFigures:
    return EngineFigures(name, not problem, problem, running=0, capacity=None, failures=0, returns=0)


def test_what_changes_between_two_looks_is_told_once(written: Path) -> None:
    engines = [engine("a:1"), engine("b:2")]
    disk: list[str] = []
    with written.open("wb") as file, logging_to(file.fileno(), LogForm.JSON, lambda: AT) as log:
        vitals = Vitals(log, lambda: engines, {"disk_low": lambda: disk})
        vitals.look()
        engines[0] = engine("a:1", "It is down.")
        disk.append("Little is left.")
        vitals.look()
        vitals.look()
        assert vitals.reasons() == ("The engine a:1 is down: It is down.", "Little is left.")
        engines[1] = engine("b:2", "The engine b:2 is gone.")
        vitals.look()
        assert vitals.reasons() == ("It is down.", "The engine b:2 is gone.", "Little is left.")
        engines[:] = [engine("a:1"), engine("b:2")]
        disk.clear()
        vitals.look()
        assert vitals.reasons() == ()
    first, *rest = told(written)
    assert first == ("engine_down", "error", "a:1")
    assert sorted(rest[:2]) == [("degraded", "warning", "disk_low"), ("degraded", "warning", "engine_down")]
    assert rest[2:5] == [("engine_down", "error", "b:2"), ("engine_up", "info", "a:1"), ("engine_up", "info", "b:2")]
    assert sorted(rest[5:]) == [("recovered", "info", "disk_low"), ("recovered", "info", "engine_down")]


def test_an_engine_that_is_down_from_the_start_is_told(written: Path) -> None:
    with written.open("wb") as file, logging_to(file.fileno(), LogForm.JSON, lambda: AT) as log:
        Vitals(log, lambda: [engine("a:1", "It is down.")], {}).look()
    assert told(written) == [("engine_down", "error", "a:1"), ("degraded", "warning", "engine_down")]


async def test_it_looks_until_it_is_cancelled() -> None:
    looks = [asyncio.Event() for _ in range(3)]
    waiting = iter(looks)

    def looked() -> tuple[str, ...]:
        next(waiting, looks[-1]).set()
        return ()

    vitals = Vitals(silent_log(), list, {"x": looked})
    async with asyncio.TaskGroup() as group, asyncio.timeout(60):
        watching = group.create_task(vitals.watch(every_s=0.001))
        await looks[-1].wait()
        watching.cancel()


def test_calls_that_were_held_too_long_are_a_trouble() -> None:
    page = [
        EnginePolicy("a:1", 1, "", None, 0, 0),
        EnginePolicy("b:2", 1, "", AT + timedelta(seconds=1), 0, 0),
        EnginePolicy("c:3", 1, "", AT, 0, 0),
    ]
    assert list(expired_holds(lambda: page, lambda: AT)()) == [
        "Calls of the engine c:3 are refused: they were held, and the deadline passed."
    ]


def test_a_late_loop_is_a_trouble() -> None:
    lag = LoopLag(lambda _: None)
    lag.measured(0.4)
    assert list(late_loop(lag)()) == []
    lag.measured(0.75)
    (said,) = late_loop(lag)()
    assert said.startswith("The event loop was 0.8 s late within the last minute")


def test_records_that_could_not_be_written_or_read_are_troubles() -> None:
    lately = Lately()
    assert (list(failed_writes(lately, str)()), list(failed_reads(lately)())) == ([], [])
    lately.note()
    assert list(failed_writes(lately, lambda: "the disk is full")()) == [
        "The journal could not be written 1 times within the last minute: the disk is full."
    ]
    assert "`turnstile store check`" in next(iter(failed_reads(lately)()))


def test_lines_that_are_dropped_are_a_trouble_until_a_minute_has_passed() -> None:
    class Dropping:
        dropped = 2

    clock = [0.0]
    log: Log = Dropping()  # type: ignore[assignment]
    troubles = dropped_lines(log, Lately(lambda: clock[0]))
    said = [list(troubles())]
    Dropping.dropped = 5
    said.append(list(troubles()))
    clock[0] = 61.0
    said.append(list(troubles()))
    assert said == [[], ["The log's reader is too slow: 5 lines were dropped so far."], []]
