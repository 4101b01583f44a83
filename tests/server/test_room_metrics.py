"""The figures of places and of the disk."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from turnstile.exchange.places import Places, Room
from turnstile.server.disk import Disk, Reserve
from turnstile.server.room_metrics import RoomMetrics


def figures(places: Places, disk: Disk) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(RoomMetrics(places, disk))
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


async def test_what_runs_and_what_is_free_is_told() -> None:
    places, disk = Places(Room()), Disk(Path("store"), Reserve(rollouts=100, calls=10), lambda _: 50)
    await disk.look()
    async with places.place("a"), places.place("a"):
        assert figures(places, disk) == {
            "turnstile_running_calls": 2,
            "turnstile_waiting_calls": 0,
            "turnstile_disk_free_bytes": 50,
            'turnstile_disk_refuses{what="rollouts"}': 1,
            'turnstile_disk_refuses{what="calls"}': 0,
        }


def test_a_disk_that_was_not_seen_has_no_figure() -> None:
    assert "turnstile_disk_free_bytes" not in figures(Places(), Disk(Path("store"), Reserve()))
