"""Several engines that serve the same model, as one.

A rollout stays with one engine, whose prefix cache has its history, and leaves it only when that engine is down. Where
a rollout went last is in the journal, so nothing here has to be kept over a restart (docs/several-engines.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, final

import msgspec

from turnstile.engines.base import WINDOW, Capabilities, Engine
from turnstile.errors import EngineError, TurnstileError
from turnstile.generation import Draw, Emit, Generation, Prompt

_LOOK_PATIENCE_S = 5.0
"""How long an engine may take to say how it is."""
_RETURN_PATIENCE_S = 120.0
"""How long it may take to find out what one serves that is back."""
_SLOW_LOOKS = 3
"""So many times in a row it may be too slow to say it before rollouts leave it: a busy engine is not down."""

Reopen: TypeAlias = Callable[[], Awaitable[Engine]]
"""Connects to an engine that was down, and checks that it serves what the others serve. Raises: TurnstileError."""
Returned: TypeAlias = Callable[[str], Awaitable[None]]
"""Told the name of an engine that has come back, before it is given calls: it may have been started again."""


class Pace(msgspec.Struct, frozen=True):
    """How often engines are looked at, in seconds."""

    up_s: float = 5.0
    """One that is up."""
    down_s: float = 1.0
    """One that has just gone down; each further time after twice as long."""
    longest_s: float = 30.0
    """One that has been down for long."""


class Seat(msgspec.Struct, frozen=True):
    """Where a call goes."""

    name: str
    """The engine's; empty: it is the only one and has no name."""
    open: Callable[[], AbstractAsyncContextManager[Engine]]
    """Gives the engine for the length of a request, so that requests and failures are counted.

    Raises on entry: EngineError `engine_unreachable` if the engine is known to be down.
    """
    left: str = ""
    """The engine that the rollout had been with, if it had to move."""
    why: str = ""
    """What was wrong with that one."""


def seat_of(engine: Engine, rollout_id: str, last: str) -> Seat:
    """The place for a rollout's next call.

    Args:
        engine: a pool, or an engine that stands alone.
        rollout_id: whose call it is.
        last: the name of the engine that its last call went to; empty if there was none.
    """
    if isinstance(engine, EnginePool):
        return engine.seat(rollout_id, last)
    return Seat("", lambda: contextlib.nullcontext(engine))


class EngineFigures(msgspec.Struct, frozen=True):
    """How one engine of a pool is now."""

    name: str
    is_up: bool
    problem: str
    """What is wrong with it, as a sentence; empty if nothing is."""
    running: int
    """Requests that it works on for us."""
    capacity: int | None
    """Sequences that it samples at once; None = it decides."""
    failures: int
    """Requests that ended in an error of the engine's."""
    returns: int
    """How often it came back after it had been down."""


async def nobody_told(_name: str) -> None:
    """Nothing depends on whether an engine was started again."""


@final
class Member:
    """One engine of a pool."""

    def __init__(
        self,
        name: str,
        engine: Engine | None,
        reopen: Reopen | None = None,
        returned: Returned = nobody_told,
        problem: str = "",
    ) -> None:
        """Begin with an engine that is up, or with what is wrong with one that is not.

        Args:
            name: its host and port.
            engine: None: it could not be reached at start.
            reopen: makes it anew when it comes back; None: it starts itself again when it is given a call.
            returned: told when it has come back.
            problem: why there is no engine.
        """
        self.name = name
        self.problem = problem
        self.running = 0
        self.failures = 0
        self.returns = 0
        self.look_patience_s = _LOOK_PATIENCE_S
        self._engine = engine
        self._reopen = reopen
        self._returned = returned
        self._failed_looks = 0
        self._slow_looks = 0
        self._looking = asyncio.Lock()

    @property
    def is_up(self) -> bool:
        """Whether it may be given calls."""
        return self._engine is not None and not self.problem

    @property
    def capabilities(self) -> Capabilities | None:
        """What it said last that it can do; None: it never said."""
        return None if self._engine is None else self._engine.capabilities

    @property
    def capacity(self) -> int | None:
        """Sequences that it samples at once; None = unknown, or it decides."""
        return None if self._engine is None else self._engine.capabilities.concurrency

    def pause_s(self, pace: Pace) -> float:
        """How long to wait before it is looked at again."""
        if self.is_up:
            return pace.up_s
        return min(pace.longest_s, pace.down_s * 2.0 ** min(16, max(0, self._failed_looks - 1)))

    @property
    def is_looked_at(self) -> bool:
        """Whether somebody is finding out how it is, which may take a while when it is back."""
        return self._looking.locked()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncGenerator[Engine]:
        """Give the engine for a request; where that fails, look at once whether it is down.

        Raises on entry: EngineError `engine_unreachable` if it is down and was not found to be back.
        """
        if not self.is_up and not self._slow_looks:
            await self.look()
        # One that is only slow is tried all the same where no other is up: it may be busy with us.
        if self._engine is None or (self.problem and self._reopen is not None and not self._slow_looks):
            raise EngineError(
                f"The engine {self.name} is down: {self.problem}",
                "Start it again; until then new calls go to other engines, if there are any",
                code="engine_unreachable",
                status=503,
            )
        self.running += 1
        try:
            yield self._engine
        except EngineError:
            self.failures += 1
            await self.look()
            raise
        else:
            if not self.is_up:
                await self.look()
        finally:
            self.running -= 1

    async def look(self) -> None:
        """Ask the engine how it is, and take what it says for its state. Raises: nothing of the engine's."""
        async with self._looking:
            was_up = self.is_up
            try:
                async with asyncio.timeout(self.look_patience_s):
                    problem = await self._asked()
                if not problem and not was_up:
                    async with asyncio.timeout(_RETURN_PATIENCE_S):
                        problem = await self._come_back()
                self._slow_looks = 0
            except TimeoutError:
                problem = self._too_slow(was_up=was_up)
            self.returns += not problem and not was_up
            self.problem = problem
            self._failed_looks = self._failed_looks + 1 if problem else 0

    def _too_slow(self, *, was_up: bool) -> str:
        """What is wrong with an engine that did not say how it is: nothing yet, if it was up and this is new."""
        if was_up or self._slow_looks:
            self._slow_looks += 1
        if was_up and self._slow_looks < _SLOW_LOOKS:
            return ""
        return f"The engine {self.name} did not say in {self.look_patience_s:g} s how it is."

    async def _asked(self) -> str:
        return "" if self._engine is None else await self._engine.health()

    async def _come_back(self) -> str:
        """Empty if an engine that was down may be given calls again, else what is wrong, as a sentence.

        Requests of ours that still run on it show that it is the same process. Otherwise it may have been started
        again, with another model for all we know.
        """
        if self._reopen is None or self.running:
            return ""
        try:
            reopened = await self._reopen()
        except TurnstileError as problem:
            return str(problem)
        try:
            await self._returned(self.name)
        except TurnstileError as problem:
            await reopened.close()
            return str(problem)
        before, self._engine = self._engine, reopened
        if before is not None:
            await before.close()
        return ""

    async def close(self) -> None:
        """Let go of it."""
        if self._engine is not None:
            await self._engine.close()


@final
class EnginePool:
    """An `Engine` that is several; at least one of them is up when it is made."""

    def __init__(self, members: Sequence[Member]) -> None:
        """Serve from some engines, which serve the same.

        Raises: ValueError if none of them has said what it can do.
        """
        self.members = {member.name: member for member in members}
        self.moves = 0
        """How many calls went to another engine than their rollout's call before."""
        self._capabilities = _together([each.capabilities for each in members if each.capabilities is not None])

    @property
    def capabilities(self) -> Capabilities:
        """What all of them can do; fixed after start."""
        return self._capabilities

    def seat(self, rollout_id: str, last: str) -> Seat:
        """The place for a rollout's next call: where its last call went, or by the hash of its id among those up.

        Where none is up, it is the place that it would have: opening that one looks whether it is back.
        """
        there = self.members.get(last)
        able = [member for member in self.members.values() if member.is_up]
        if there is not None and (there.is_up or not able):
            return Seat(there.name, there.open)
        chosen = _by_hash(rollout_id, able or list(self.members.values()))
        if not last:
            return Seat(chosen.name, chosen.open)
        self.moves += 1
        why = "it is not among the engines any more" if there is None else there.problem
        return Seat(chosen.name, chosen.open, last, why)

    async def generate(self, prompt: Prompt, draw: Draw, emit: Emit) -> Generation:
        """Sample one completion on the engine of the draw's affinity; see `Engine.generate`."""
        async with self.seat(draw.affinity, "").open() as engine:
            return await engine.generate(prompt, draw, emit)

    async def health(self) -> str:
        """Empty if one of them is ready, else what is wrong with each."""
        await asyncio.gather(*(member.look() for member in self.members.values() if not member.is_looked_at))
        if any(member.is_up for member in self.members.values()):
            return ""
        return " ".join(member.problem for member in self.members.values())

    def figures(self) -> Iterator[EngineFigures]:
        """How each of them is now."""
        for each in self.members.values():
            yield EngineFigures(
                each.name, each.is_up, each.problem, each.running, each.capacity, each.failures, each.returns
            )

    async def watch(self, pace: Pace) -> None:
        """Look at each of them from time to time, for ever."""
        async with asyncio.TaskGroup() as watching:
            for member in self.members.values():
                watching.create_task(_watch(member, pace))

    async def close(self) -> None:
        """Let go of all of them."""
        for member in self.members.values():
            await member.close()


async def _watch(member: Member, pace: Pace) -> None:
    while True:
        await asyncio.sleep(member.pause_s(pace))
        await member.look()


def _by_hash(rollout_id: str, able: Sequence[Member]) -> Member:
    capacities = [member.capacity for member in able]
    weights = [capacity or 1 for capacity in capacities] if all(capacities) else [1] * len(able)
    scored = zip(able, weights, strict=True)
    return max(scored, key=lambda each: _score(rollout_id, each[0].name, each[1]))[0]


def _score(rollout_id: str, name: str, weight: int) -> float:
    """Rendezvous hashing with weights (Schindelhauer and Schomaker 2005): the largest wins.

    An engine that goes takes only its own rollouts along, and each engine gets its weight's share.
    """
    digest = hashlib.sha256(f"{rollout_id}\n{name}".encode()).digest()
    drawn = (int.from_bytes(digest[:7], "big") + 1) / (2**56 + 1)
    return -weight / math.log(drawn)


def _together(all_of_them: Sequence[Capabilities]) -> Capabilities:
    """What engines that were compared with each other can do together."""
    if not all_of_them:
        raise ValueError("no engine of the pool has said what it can do")
    windows = [each.context_length for each in all_of_them]
    known = [window for window in windows if window is not None]
    first = all_of_them[0]
    return msgspec.structs.replace(
        first if len(set(windows)) == 1 else _without_window(first),
        context_length=min(known) if len(known) == len(windows) else None,
        concurrency=_total(each.concurrency for each in all_of_them),
    )


def _without_window(told: Capabilities) -> Capabilities:
    return msgspec.structs.replace(told, present=tuple(each for each in told.present if each.what != WINDOW))


def _total(numbers: Iterator[int | None]) -> int | None:
    listed = list(numbers)
    known = [number for number in listed if number is not None]
    return sum(known) if len(known) == len(listed) else None


_SHOWN = 80
"""Characters of a difference that are shown."""
_OWN = frozenset({"context_length", "concurrency"})
"""What may differ from engine to engine; of windows the shortest counts."""


def differences(first: Capabilities, other: Capabilities) -> tuple[str, ...]:
    """What another engine does not serve as the first one does, each as `field: this, not that`; none: it is alike."""
    first, other = _without_window(first), _without_window(other)
    return tuple(
        f"{name}: {_shown(getattr(other, name))}, not {_shown(getattr(first, name))}"
        for name in Capabilities.__struct_fields__
        if name not in _OWN and getattr(first, name) != getattr(other, name)
    )


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
