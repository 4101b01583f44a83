"""A Turnstile under a crowd of agents while something is wrong around it, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import httpx
from crowd import Crowd
from judge import lost, unfaithful, unsound
from nursery import Nursery, Turnstile

from turnstile.templates.tokenizer import Tokenizer

PATIENCE_S = 90.0


class Engine(Protocol):
    """Where an engine answers."""

    url: str


@dataclass
class Siege:
    """One Turnstile in a process of its own, and agents who go on until they are called off."""

    model: Path
    """The model folder."""
    nursery: Nursery
    engine: Engine
    store: Path
    options: tuple[str, ...] = ()
    seed: int = 1
    turnstile: Turnstile | None = None
    is_over: bool = False
    log_began: int = 0
    crowd: Crowd = field(init=False)

    def __post_init__(self) -> None:
        self.crowd = Crowd(self.seed, 4, lambda: self.server.url, patience_s=PATIENCE_S)

    @property
    def server(self) -> Turnstile:
        """The process."""
        assert self.turnstile is not None
        return self.turnstile

    def start(self) -> None:
        """Bring it up."""
        options = ["--engine", self.engine.url, "--model", "m", "--tokenizer", str(self.model)]
        options += ["--store", str(self.store), "--port", "0", "--grace-s", "0.5"]
        # A disk that is small must be found to be full: refusing before that is tested elsewhere.
        options += ["--disk-reserve-mb", "0", "--disk-floor-mb", "0", *self.options]
        self.log_began = self.nursery.log.stat().st_size
        self.turnstile = self.nursery.start(options)

    @contextlib.asynccontextmanager
    async def talking(self, agents: int = 4) -> AsyncGenerator[None]:
        """Let agents talk for as long as the block runs; it is left when each has come to the end of its rollout."""
        names = itertools.count()
        async with asyncio.TaskGroup() as group:
            for _ in range(agents):
                group.create_task(self._lane(names))
            try:
                yield
            finally:
                self.is_over = True
        await self.crowd.close()

    async def under(self, wrong: Callable[[], object], right: Callable[[], object]) -> None:
        """When agents talk, make it wrong until some were refused; make it right, and see them go on."""
        async with self.talking():
            await self.until(lambda: len(self.crowd.finished) >= 2)
            await asyncio.to_thread(wrong)
            try:
                await self.until(lambda: self.crowd.asked_again >= 4)
            finally:
                await asyncio.to_thread(right)
            await self.goes_on()

    async def get(self, path: str) -> httpx.Response:
        """Ask it for anything."""
        async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as http:
            return await http.get(self.server.url + path)

    async def goes_on(self, answers: int = 12) -> None:
        """Wait for so many more answers."""
        enough = len(self.crowd.seen) + answers
        await self.until(lambda: len(self.crowd.seen) >= enough)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for what others do."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert self.server.lives, "Turnstile is dead"
            assert time.monotonic() < deadline, f"waited in vain; refused so far: {self.crowd.refusals}"
            await asyncio.sleep(0.02)

    async def _lane(self, names: itertools.count[int]) -> None:
        while not self.is_over:
            await self.crowd.live(f"siege-{next(names)}")

    async def settled(self, files: int) -> None:
        """Its open files are as many as they were, give or take those of threads that came up meanwhile."""
        await self.until(lambda: self.server.open_files() <= files + 4)

    def breaches(self) -> list[str]:
        """Everything that must hold and does not, by the store alone, which whoever asks has killed the server of."""
        tokenizer = Tokenizer.from_json((self.model / "tokenizer.json").read_text(encoding="utf-8"))
        return [
            *self.crowd.wrong,
            *lost(self.store, self.crowd.seen),
            *unsound(self.store),
            *unfaithful(self.store, self.crowd, tokenizer),
        ]

    def tracebacks(self) -> list[str]:
        """Lines of its log that say that something was not foreseen."""
        log = self.nursery.log.read_bytes()[self.log_began :].decode(errors="replace")
        return [line for line in log.splitlines() if "Traceback" in line or "Exception in ASGI" in line]
