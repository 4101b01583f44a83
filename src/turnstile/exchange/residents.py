"""Which rollouts are in memory: those in use, and as many of the others as a cap in bytes lets stay.

A rollout that leaves is in the journal and comes back from there with its next call. One that anybody still holds, a
running call or a waiting client, is never in memory twice: it is found again for as long as it lives.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar, final
from weakref import WeakValueDictionary

QUIET_S = 60.0
"""A rollout that was asked for so recently stays: its client's retries are told apart by what only memory knows."""


class Resident(Protocol):
    """What is kept."""

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes."""
        ...

    @property
    def unwritten(self) -> set[str]:
        """What only memory knows of it; it comes back with it."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a call of it is running, or something of it is yet to be written."""
        ...


ResidentT = TypeVar("ResidentT", bound=Resident)


@final
class Residents(Generic[ResidentT]):
    """Rollouts by id, the least recently used first."""

    def __init__(self, cap_bytes: int, clock: Callable[[], float], quiet_s: float = QUIET_S) -> None:
        """Let rollouts stay until together they take more than `cap_bytes`.

        Args:
            cap_bytes: of all that are in memory; those in use and the recent ones stay even beyond it.
            clock: seconds, never going back.
            quiet_s: how long nobody must have asked for one that leaves.
        """
        self._cap_bytes = cap_bytes
        self._clock = clock
        self._quiet_s = quiet_s
        self._kept: OrderedDict[str, ResidentT] = OrderedDict()
        self._used: dict[str, float] = {}
        self._alive: WeakValueDictionary[str, ResidentT] = WeakValueDictionary()
        self._left: dict[str, set[str]] = {}
        self.bytes = 0
        """About how much all that are kept take."""
        self.times_left = 0
        """How often one has left."""
        self.times_returned = 0
        """How often one that had left has come back."""

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[ResidentT]:
        return iter(self._kept.values())

    def get(self, rollout_id: str) -> ResidentT | None:
        """A rollout that is in memory, from now on the most recently used; None if it is not."""
        found = self._kept.get(rollout_id)
        if found is None:
            found = self._alive.get(rollout_id)
            if found is not None:
                self.put(rollout_id, found)
            return found
        self._kept.move_to_end(rollout_id)
        self._used[rollout_id] = self._clock()
        return found

    def put(self, rollout_id: str, rollout: ResidentT) -> None:
        """Keep a rollout, the most recently used of all."""
        self.times_returned += rollout_id in self._left and rollout_id not in self._kept
        self._kept[rollout_id] = rollout
        self._alive[rollout_id] = rollout
        self._used[rollout_id] = self._clock()
        self.bytes += rollout.weight
        self.shed()

    def grew(self, rollout_id: str, by_bytes: int) -> None:
        """A rollout takes more than before; one that had left while somebody held it is back."""
        if rollout_id in self._kept:
            self.bytes += by_bytes
            self.shed()
        elif (alive := self._alive.get(rollout_id)) is not None:
            self.put(rollout_id, alive)

    def drop(self, rollout_id: str) -> None:
        """A rollout is over: it need not be found again."""
        rollout = self._kept.pop(rollout_id, None)
        self._alive.pop(rollout_id, None)
        self._used.pop(rollout_id, None)
        self._left.pop(rollout_id, None)
        if rollout is not None:
            self.bytes -= rollout.weight

    def unwritten(self, rollout_id: str) -> set[str]:
        """What only memory knows of a rollout that left; nothing of one that was never here."""
        return self._left.get(rollout_id, set())

    def shed(self) -> None:
        """Let the least recently used leave until the rest fits; those that are busy or recent stay."""
        if self.bytes <= self._cap_bytes:
            return
        until = self._clock() - self._quiet_s
        for rollout_id in list(self._kept):
            if self.bytes <= self._cap_bytes or self._used[rollout_id] > until:
                return
            rollout = self._kept[rollout_id]
            if not rollout.is_busy:
                del self._kept[rollout_id]
                del self._used[rollout_id]
                self._left[rollout_id] = rollout.unwritten
                self.bytes -= rollout.weight
                self.times_left += 1
