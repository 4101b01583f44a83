"""How much room the store's disk has, and what is refused while there is too little (docs/decisions/0030)."""

from __future__ import annotations

import asyncio
import enum
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import final

import msgspec

from turnstile.errors import TurnstileError

LOOK_EVERY_S = 1.0
_AGAIN = 1.25
"""How many times a threshold must be free before what was refused below it is taken again: no coming and going."""
_MIB = 1 << 20


class DiskState(enum.StrEnum):
    """What the disk has room for."""

    ROOMY = "roomy"
    LOW = "low"
    """For what has begun: no new rollouts."""
    FULL = "full"
    """For the ends of what runs: no new calls either."""


class Reserve(msgspec.Struct, frozen=True):
    """Free bytes below which things are refused."""

    rollouts: int = 512 * _MIB
    """New rollouts; 0 = never."""
    calls: int = 64 * _MIB
    """New calls too; 0 = never."""


def _free_bytes(directory: Path) -> int:
    return shutil.disk_usage(directory).free


@final
class Disk:
    """The disk that a store is on. Looked at from a thread, and answered for from the last look."""

    def __init__(self, directory: Path, reserve: Reserve, free_bytes: Callable[[Path], int] = _free_bytes) -> None:
        """Know nothing yet, and refuse nothing until the first look.

        Args:
            directory: of the store.
            reserve: what is to stay free.
            free_bytes: how much a directory's disk has left; it may block, and raise OSError.
        """
        self._directory = directory
        self._reserve = reserve
        self._measure = free_bytes
        self.state = DiskState.ROOMY
        self.free_bytes: int | None = None
        """As of the last look; None: it could not be told."""

    async def watch(self, every_s: float = LOOK_EVERY_S) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(every_s)

    async def look(self) -> None:
        """See how much is free now. What cannot be told changes nothing: the journal will say it."""
        try:
            self.free_bytes = await asyncio.to_thread(self._measure, self._directory)
        except OSError:
            self.free_bytes = None
            return
        self.state = self._state_of(self.free_bytes)

    def _state_of(self, free: int) -> DiskState:
        leaves_full = _AGAIN if self.state is DiskState.FULL else 1.0
        leaves_low = _AGAIN if self.state is not DiskState.ROOMY else 1.0
        if free < self._reserve.calls * leaves_full:
            return DiskState.FULL
        return DiskState.LOW if free < self._reserve.rollouts * leaves_low else DiskState.ROOMY

    @property
    def reason(self) -> str:
        """Why not everything is served, as a sentence with the numbers; empty if everything is."""
        match self.state:
            case DiskState.ROOMY:
                return ""
            case DiskState.LOW:
                return f"The disk of the store is low: {self._numbers(self._reserve.rollouts)}; no rollouts begin."
            case DiskState.FULL:
                return f"The disk of the store is full: {self._numbers(self._reserve.calls)}; no calls are taken."

    def troubles(self) -> tuple[str, ...]:
        """The same, as a list of one or none."""
        return (self.reason,) if self.reason else ()

    def _numbers(self, threshold: int) -> str:
        free = "an unknown number of" if self.free_bytes is None else str(self.free_bytes // _MIB)
        return f"{free} MiB are free, and {threshold // _MIB} are reserved"

    def check_rollout(self) -> None:
        """See that a rollout may begin.

        Raises: TurnstileError `disk_low` with status 503.
        """
        if self.state is not DiskState.ROOMY:
            raise _disk_low(
                f"The store's disk is low, so that no rollout begins: {self._numbers(self._reserve.rollouts)}"
            )

    def check_call(self) -> None:
        """See that a call may begin.

        Raises: TurnstileError `disk_low` with status 503.
        """
        if self.state is DiskState.FULL:
            raise _disk_low(f"The store's disk is full, so that no call runs: {self._numbers(self._reserve.calls)}")


def _disk_low(problem: str) -> TurnstileError:
    return TurnstileError(
        problem,
        "Send it again when there is room: delete or move what else is on that disk, or lower --disk-reserve-mb",
        code="disk_low",
        status=503,
    )
