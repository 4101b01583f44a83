"""What a server does for its store on its own: close what nobody calls, delete what is not kept, note what left.

All that blocks runs in threads, and every change is a transaction of milliseconds among the journal's others, so the
event loop never waits for any of it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import final

from turnstile.errors import StoreError
from turnstile.exchange.rollouts import Rollouts
from turnstile.history.forest import Forest
from turnstile.journal import RolloutStatus
from turnstile.store import Journal, Reader
from turnstile.store.exports import ExportMark, mark
from turnstile.store.pruning import Due, Keep, Pruned, Pruner
from turnstile.store.tombstones import Tombstone

log = logging.getLogger(__name__)

PRUNE_EVERY_S = 30.0
_TIDY_EVERY = 20
"""Passes between two looks at every blob."""
_PAUSE_S = 0.005
"""Between two steps, so that a long pass leaves the journal and the disk to the calls."""
_PAGE = 256
_LONGEST_IDLE_LOOK_S = 30.0


@final
class Upkeep:
    """Looks after one store for as long as its server runs."""

    def __init__(self, journal: Journal, reader: Reader, rollouts: Rollouts, keep: Keep) -> None:
        """Look after a store.

        Args:
            journal: how it is changed.
            reader: how it is read.
            rollouts: those that are open.
            keep: what retention keeps.
        """
        self._journal = journal
        self._reader = reader
        self._rollouts = rollouts
        self._keep = keep
        self.closed_idle = 0
        """Rollouts that were closed because nobody called them."""
        self.deleted: Counter[str] = Counter()
        """Attempts that were deleted, by reason."""
        self.marked = 0
        """Marks of attempts that left, written by this server."""
        self.trouble = ""
        """Why the last pass of retention failed; empty if it did not."""

    async def watch(self, now: Callable[[], datetime], closed: Callable[[Forest], None]) -> None:
        """Look again and again, until cancelled.

        Args:
            now: the clock.
            closed: told of each rollout that was closed because nobody called it; it may block.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._retain(now))
            if self._rollouts.idle.limit_s:
                tasks.create_task(self._close_idle_ones(closed))

    def troubles(self) -> tuple[str, ...]:
        """What does not work as it should, in sentences."""
        return (f"Old rollouts are not deleted: {self.trouble}",) if self.trouble else ()

    async def mark(self, left: ExportMark) -> bool:
        """Note that a closed attempt left; False if it is open, or not there. Raises: StoreError."""
        written = await asyncio.to_thread(self._journal.change, lambda connection: mark(connection, [left]))
        self.marked += written
        return written > 0

    def went(self, stones: tuple[Tombstone, ...]) -> None:
        """Count attempts that somebody deleted."""
        self.deleted.update(stone.reason.value for stone in stones)

    async def close_idle(self, closed: Callable[[Forest], None]) -> None:
        """Close every rollout that has had no call for too long, and tell of each."""
        after = 0
        while page := await asyncio.to_thread(
            self._reader.rollouts, status=RolloutStatus.RUNNING, after=after, limit=_PAGE
        ):
            after = page[-1].number
            for each in page:
                rollout = await self._rollouts.close_idle(each.rollout_id)
                if rollout is not None:
                    self.closed_idle += 1
                    await asyncio.to_thread(_tell_closed, closed, rollout.forest)

    async def _close_idle_ones(self, closed: Callable[[Forest], None]) -> None:
        every_s = min(self._rollouts.idle.limit_s / 4, _LONGEST_IDLE_LOOK_S)
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.close_idle(closed)
            except StoreError as trouble:
                log.warning("cannot close idle rollouts: %s", trouble)

    async def _retain(self, now: Callable[[], datetime]) -> None:
        stop = threading.Event()
        pruner = Pruner(self._journal.directory, self._journal.change, now, lambda: not stop.wait(_PAUSE_S))
        try:
            for number in itertools.count():
                await self._prune(pruner, number)
                await asyncio.sleep(PRUNE_EVERY_S)
        finally:
            # The thread ends between two steps; what it has not done is done by the next server.
            stop.set()

    async def _prune(self, pruner: Pruner, number: int) -> None:
        try:
            pruned = await asyncio.to_thread(pruner.prune, self._keep, self._gone)
            if number % _TIDY_EVERY == 0:
                await asyncio.to_thread(pruner.tidy, pruned)
        except (StoreError, OSError) as trouble:
            self.trouble = str(trouble)
            log.warning("cannot prune the store: %s", trouble)
        else:
            self.trouble = ""
            _tell(pruned)

    def _gone(self, due: Due) -> None:
        self.deleted[due.reason.value] += 1


def _tell_closed(closed: Callable[[Forest], None], forest: Forest) -> None:
    try:
        closed(forest)
    except Exception:
        # A fault in what counts must not end what closes.
        log.exception("cannot count what becomes of a rollout's tokens")


def _tell(pruned: Pruned) -> None:
    if pruned.attempts or pruned.blobs:
        log.info("pruned %d attempts, %d records, %d blobs", pruned.attempts, pruned.records, pruned.blobs)
