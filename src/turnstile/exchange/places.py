"""How many calls run at once, and who waits for a place (docs/decisions/0030).

A call holds its place from before its prompt is planned until its end is durable. Those that wait are served in the
order in which they came, but rollouts take turns: one that asks a thousand things at once delays no other by more than
one call. A rollout that has all the places it may have keeps nobody else waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from typing import final

import msgspec

from turnstile.errors import TurnstileError


class Room(msgspec.Struct, frozen=True):
    """How many calls may run and wait; what a server is told."""

    total: int = 4096
    """Calls that run at once."""
    each: int = 256
    """Of these, of one rollout."""
    waiting: int = 4096
    """Calls that wait for a place."""
    deadline_s: float = 30.0
    """How long one waits before it is refused."""


_ROOM = Room()


@final
class Places:
    """The places of one server. Used on one event loop."""

    def __init__(self, room: Room = _ROOM, check: Callable[[], None] = lambda: None) -> None:
        """Begin with all places free.

        Args:
            room: how many there are.
            check: raises TurnstileError while no call may begin, also one that came when it might.
        """
        self._room = room
        self._check = check
        self._taken: Counter[str] = Counter()
        self._running = 0
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        # Rollouts of which a call waits and may run as soon as any place is free; the next one first.
        self._turns: OrderedDict[str, None] = OrderedDict()
        self._waiting = 0

    @property
    def running(self) -> int:
        """How many calls hold a place."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many calls wait for one."""
        return self._waiting

    @contextlib.asynccontextmanager
    async def place(self, rollout_id: str) -> AsyncGenerator[None]:
        """Hold a place for the length of the block, after waiting for it.

        Raises: TurnstileError `overloaded` with status 503 if too many wait, or none came free in time; whatever
            says that no call may begin.
        """
        await self._take(rollout_id)
        try:
            self._check()
            yield
        finally:
            self._give_back(rollout_id)

    async def _take(self, rollout_id: str) -> None:
        if self._is_free(rollout_id):
            self._seat(rollout_id)
            return
        if self._waiting >= self._room.waiting:
            raise _overloaded(f"{self._running} calls run and {self._waiting} wait, which is as many as may")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line_up(rollout_id, turn)
        try:
            async with asyncio.timeout(self._room.deadline_s):
                await turn
        except BaseException as error:
            self._leave(rollout_id, turn)
            if isinstance(error, TimeoutError):
                raise _overloaded(f"No place came free within {self._room.deadline_s:g} s") from None
            raise

    def _is_free(self, rollout_id: str) -> bool:
        return self._running < self._room.total and self._taken[rollout_id] < self._room.each

    def _seat(self, rollout_id: str) -> None:
        self._running += 1
        self._taken[rollout_id] += 1

    def _line_up(self, rollout_id: str, turn: asyncio.Future[None]) -> None:
        self._queues.setdefault(rollout_id, deque()).append(turn)
        self._waiting += 1
        if self._taken[rollout_id] < self._room.each:
            self._turns.setdefault(rollout_id)

    def _leave(self, rollout_id: str, turn: asyncio.Future[None]) -> None:
        """Stop waiting; a place that was given in the same moment goes to the next."""
        if not turn.cancelled():
            if turn.done():
                self._give_back(rollout_id)
                return
            turn.cancel()
        if turn in (queue := self._queues.get(rollout_id, deque())):
            queue.remove(turn)
            self._left_queue(rollout_id)

    def _give_back(self, rollout_id: str) -> None:
        self._running -= 1
        self._taken[rollout_id] -= 1
        if rollout_id in self._queues:
            self._turns.setdefault(rollout_id)
        if not self._taken[rollout_id]:
            del self._taken[rollout_id]
        self._call_next()

    def _call_next(self) -> None:
        while self._turns and self._running < self._room.total:
            rollout_id, _ = self._turns.popitem(last=False)
            turn = self._queues[rollout_id].popleft()
            # One that was cancelled has not yet been told so.
            if not turn.cancelled():
                turn.set_result(None)
                self._seat(rollout_id)
            self._left_queue(rollout_id)
            if rollout_id in self._queues and self._taken[rollout_id] < self._room.each:
                self._turns[rollout_id] = None

    def _left_queue(self, rollout_id: str) -> None:
        self._waiting -= 1
        if not self._queues[rollout_id]:
            del self._queues[rollout_id]
            self._turns.pop(rollout_id, None)


def _overloaded(problem: str) -> TurnstileError:
    return TurnstileError(
        problem,
        "Send it again later; --max-calls, --max-calls-per-rollout, --max-waiting and --queue-s say how many may",
        code="overloaded",
        status=503,
    )
