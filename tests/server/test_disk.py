"""What is refused while the store's disk has too little room."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from turnstile.errors import TurnstileError
from turnstile.server.disk import Disk, DiskState, Reserve

MIB = 1 << 20
RESERVE = Reserve(rollouts=100 * MIB, calls=20 * MIB)


class Room:
    """A disk whose free space is set."""

    def __init__(self) -> None:
        self.free: int | OSError = 0
        self.disk = Disk(Path("store"), RESERVE, self._measure)

    def _measure(self, directory: Path) -> int:
        assert directory == Path("store")
        if isinstance(self.free, OSError):
            raise self.free
        return self.free

    async def is_now(self, free_mib: float) -> DiskState:
        self.free = int(free_mib * MIB)
        await self.disk.look()
        return self.disk.state


def refusal(check: Callable[[], None]) -> str:
    try:
        check()
    except TurnstileError as error:
        assert (error.code, error.status) == ("disk_low", 503)
        return str(error)
    return ""


async def test_states_are_left_again_only_with_room_to_spare() -> None:
    room = Room()
    seen = [await room.is_now(free) for free in (100, 99.9, 124.9, 125, 20, 19.9, 24.9, 25, 124.9, 10, 200)]
    assert seen == [
        DiskState.ROOMY, DiskState.LOW, DiskState.LOW, DiskState.ROOMY, DiskState.LOW, DiskState.FULL,
        DiskState.FULL, DiskState.LOW, DiskState.LOW, DiskState.FULL, DiskState.ROOMY,
    ]  # fmt: skip


async def test_where_there_is_room_nothing_is_refused() -> None:
    room = Room()
    assert (refusal(room.disk.check_rollout), refusal(room.disk.check_call), room.disk.reason) == ("", "", "")
    await room.is_now(500)
    assert (refusal(room.disk.check_rollout), refusal(room.disk.check_call), room.disk.reason) == ("", "", "")


async def test_a_low_disk_begins_no_rollout_and_goes_on_with_the_open_ones() -> None:
    room = Room()
    await room.is_now(99)
    assert refusal(room.disk.check_call) == ""
    assert refusal(room.disk.check_rollout) == (
        "The store's disk is low, so that no rollout begins: 99 MiB are free, and 100 are reserved. Send it again when "
        "there is room: delete or move what else is on that disk, or lower --disk-reserve-mb."
    )
    assert room.disk.reason == (
        "The disk of the store is low: 99 MiB are free, and 100 are reserved; no rollouts begin."
    )


async def test_a_full_disk_takes_no_call() -> None:
    room = Room()
    await room.is_now(19)
    assert refusal(room.disk.check_rollout).startswith("The store's disk is low")
    assert refusal(room.disk.check_call).startswith(
        "The store's disk is full, so that no call runs: 19 MiB are free, and 20 are reserved. Send it again when"
    )
    assert (
        room.disk.reason == "The disk of the store is full: 19 MiB are free, and 20 are reserved; no calls are taken."
    )


async def test_a_disk_that_cannot_be_looked_at_stays_as_it_was_last_seen() -> None:
    room = Room()
    await room.is_now(99)
    room.free = OSError("gone")
    await room.disk.look()
    assert (room.disk.state, room.disk.free_bytes) == (DiskState.LOW, None)
    assert "an unknown number of MiB are free" in room.disk.reason


async def test_a_reserve_of_nothing_refuses_nothing() -> None:
    disk = Disk(Path("store"), Reserve(0, 0), lambda _: 0)
    await disk.look()
    assert (disk.state, refusal(disk.check_rollout), refusal(disk.check_call)) == (DiskState.ROOMY, "", "")


async def test_the_disk_is_looked_at_again_and_again_away_from_the_loop() -> None:
    threads: list[threading.Thread] = []
    loop, thrice = asyncio.get_running_loop(), asyncio.Event()

    def measure(_: Path) -> int:
        threads.append(threading.current_thread())
        if len(threads) == 3:
            loop.call_soon_threadsafe(thrice.set)
        return 0

    async with asyncio.TaskGroup() as hands, asyncio.timeout(60):
        watching = hands.create_task(Disk(Path("store"), RESERVE, measure).watch(every_s=0.001))
        await thrice.wait()
        watching.cancel()
    assert threading.main_thread() not in threads


async def test_a_real_disk_has_some_room(tmp_path: Path) -> None:
    disk = Disk(tmp_path, RESERVE)
    await disk.look()
    assert disk.free_bytes is not None
    with pytest.raises(TurnstileError):
        far_too_much = Disk(tmp_path, Reserve(rollouts=1 << 80))
        await far_too_much.look()
        far_too_much.check_rollout()
