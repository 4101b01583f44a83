"""Which of llama.cpp's slots a call may use.

A slot holds one sequence's key-value cache. A call that is sampled in segments must find its own cache again at
each segment, so it leases a slot for its whole length, and no two calls of this process share one.

A server whose slots share one cache (`--kv-unified`, the default of `llama-server`) empties every idle slot when a
request starts on another, and a call between two segments is idle. Naming the slot would then cost the whole prompt
each time, where the server's own choice finds the saved cache (docs/decisions/0003-llamacpp-exact-streaming.md). So
slots are named until one was found empty.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

ANY_SLOT = -1
"""What llama.cpp takes for "choose one yourself"."""


class Lease:
    """A slot that one call may use."""

    __slots__ = ("_pool", "_slot")

    def __init__(self, pool: SlotPool, slot: int) -> None:
        self._pool = pool
        self._slot = slot

    @property
    def id_slot(self) -> int:
        """The slot to name in the next request."""
        return self._slot if self._pool.names_slots else ANY_SLOT

    def found_empty(self) -> None:
        """Say that the slot had lost the cache of this very call."""
        self._pool.names_slots = False


class SlotPool:
    """Slots 0 ... size - 1. Waiting calls are served in the order in which they came."""

    def __init__(self, size: int) -> None:
        self._free: dict[int, None] = dict.fromkeys(range(size))
        self._last_affinity: dict[int, str] = {}
        self.names_slots = True
        self._waiting: deque[tuple[str, asyncio.Future[int]]] = deque()

    @asynccontextmanager
    async def lease(self, affinity: str) -> AsyncGenerator[Lease]:
        """A slot, for as long as the block runs; if one can be chosen, the one that `affinity` used last."""
        slot = await self._take(affinity)
        try:
            yield Lease(self, slot)
        finally:
            self._give(slot)

    async def _take(self, affinity: str) -> int:
        if self._free:
            return self._pick(affinity)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((affinity, future))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._give(future.result())
            raise

    def _pick(self, affinity: str) -> int:
        # Freed slots are appended, so the first is the one whose cache has been unused for longest.
        slot = next(iter(self._free))
        if affinity:
            slot = next((free for free in self._free if self._last_affinity.get(free) == affinity), slot)
        del self._free[slot]
        self._last_affinity[slot] = affinity
        return slot

    def _give(self, slot: int) -> None:
        self._free[slot] = None
        while self._waiting:
            affinity, future = self._waiting.popleft()
            if not future.done():
                future.set_result(self._pick(affinity))
                return
