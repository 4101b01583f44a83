"""What the wire fakes have in common that no wire says: how they run, what they answer next, how likely each id is.

It imports nothing of Turnstile. The fakes import it by its name, so this folder is in `sys.path` where they are
loaded.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class FakeServer(ABC):
    """A server on 127.0.0.1 that answers what it was told to, with a distribution that is the same in every place."""

    token_bytes: Sequence[bytes]
    special: frozenset[int] = frozenset()
    eos: frozenset[int] = frozenset()
    context: int = 4096
    api_key: str = ""
    model: str = "fake"
    token_delay_s: float = 0.0
    held: bool = False
    """Whether tokens wait until this is taken back."""
    logit: Callable[[int], float] = lambda token: -(token % 13) / 2
    answer: Callable[[list[int]], list[int]] | None = None
    """What is answered to a prompt's ids where nothing is scripted."""
    faults: deque[Any] = field(default_factory=deque)
    """What goes wrong with the next requests, one entry a request."""
    port: int = 0
    _scripted: deque[list[int]] = field(default_factory=deque)
    _totals: dict[tuple[Callable[[int], float], float], float] = field(default_factory=dict)
    _likeliest: dict[tuple[Callable[[int], float], int], list[int]] = field(default_factory=dict)

    @abstractmethod
    def app(self) -> web.Application:
        """The routes."""

    def script(self, *answers: Sequence[int]) -> None:
        """Answer the next requests for tokens with these ids, one after the other."""
        self._scripted.extend(list(answer) for answer in answers)

    @property
    def is_spent(self) -> bool:
        """Whether no scripted answer and no fault is left."""
        return not self._scripted and not self.faults

    def next_answer(self, prompt: list[int]) -> list[int]:
        """What was scripted, else what `answer` makes of a prompt, else an end."""
        if self._scripted:
            return self._scripted.popleft()
        return self.answer(prompt) if self.answer else [next(iter(self.eos), 0)]

    def logprob(self, token: int, temperature: float = 1.0) -> float:
        """Natural log of the probability of an id, in any place."""
        key = (self.logit, temperature)
        if key not in self._totals:
            weights = (math.exp(self.logit(one) / temperature) for one in range(len(self.token_bytes)))
            self._totals[key] = math.log(math.fsum(weights))
        return self.logit(token) / temperature - self._totals[key]

    def ranked(self, count: int) -> list[int]:
        """The likeliest ids, in any place."""
        key = (self.logit, count)
        if key not in self._likeliest:
            self._likeliest[key] = heapq.nlargest(count, range(len(self.token_bytes)), key=self.logit)
        return self._likeliest[key]

    async def pace(self, tokens: int = 1) -> None:
        """Take the time of so many tokens, and wait while tokens are held."""
        await asyncio.sleep(self.token_delay_s * tokens)
        while self.held:  # noqa: ASYNC110 - taken back by another thread, which has no event of this loop
            await asyncio.sleep(0.005)

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncGenerator[str]:
        """The base URL, for as long as the block runs; port 0 = any free one."""
        runner = web.AppRunner(self.app(), handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self.port = runner.addresses[0][1]
        try:
            yield f"http://127.0.0.1:{self.port}"
        finally:
            await runner.cleanup()

    @contextmanager
    def in_thread(self, port: int = 0) -> Generator[str]:
        """The same, in a thread with its own event loop."""
        started: deque[str] = deque()
        ready = threading.Event()
        stop = asyncio.Event()
        loop = asyncio.new_event_loop()

        async def serve() -> None:
            async with self.serving(port) as url:
                started.append(url)
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        if not ready.wait(10):
            raise RuntimeError("the fake engine did not start")
        try:
            yield started[0]
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join(10)
            loop.close()


def cut(request: web.Request) -> None:
    """Reset the connection of a request."""
    assert request.transport is not None
    request.transport.abort()
