"""The engines that a server is given, from their addresses to one pool (docs/several-engines.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias, final
from urllib.parse import urlsplit

from turnstile.engines import EMBEDDED, Capabilities, Engine, EngineServer, engine_url
from turnstile.engines.pool import EnginePool, Member, Returned, differences
from turnstile.errors import CallerError, EngineError
from turnstile.server.parity import check_parity
from turnstile.templates.served import Served

OpenEngine: TypeAlias = Callable[[str], Awaitable[EngineServer]]
"""Connects to one address. Raises: CallerError if no engine is served there, EngineError if it is down."""


def engine_names(targets: Sequence[str]) -> tuple[str, ...]:
    """What each of several engines is called, in order: its host, port and path.

    Raises: CallerError `engine_address` if one is no address, two are the same, or the embedded one is among several.
    """
    names = tuple(target if target == EMBEDDED else _name(engine_url(target)) for target in targets)
    if EMBEDDED in names and len(names) > 1:
        raise CallerError(
            f"The engine `{EMBEDDED}` stands alone, but {len(names)} engines are named",
            "Give the addresses of servers, or that one only",
            code="engine_address",
        )
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise CallerError(f"The engine {twice} is named twice", "Name each engine once", code="engine_address")
    return names


def _name(url: str) -> str:
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return f"{host}:{port}{parts.path}"


@final
class Fleet:
    """Engines that were asked what they are; `pool` makes one engine of them."""

    def __init__(
        self, targets: Mapping[str, str], found: Mapping[str, EngineServer | EngineError], ask: OpenEngine
    ) -> None:
        """Hold what answered; `connect` asks.

        Args:
            targets: addresses by name.
            found: by name, the server, or what is wrong with it; one server at least.
            ask: connects to an address again.
        """
        self._targets = targets
        self._servers = {name: server for name, server in found.items() if not isinstance(server, EngineError)}
        self._down = {name: str(problem) for name, problem in found.items() if isinstance(problem, EngineError)}
        self._ask = ask

    @classmethod
    async def connect(cls, targets: Sequence[str], ask: OpenEngine) -> Fleet:
        """Ask all engines at once. Those that are down are left for later, as long as one is up.

        Raises: CallerError `engine_address`; EngineError of the first one if none is up.
        """
        names = engine_names(targets)
        answers = await asyncio.gather(*(ask(target) for target in targets), return_exceptions=True)
        found: dict[str, EngineServer | EngineError] = {}
        wrong: list[BaseException] = []
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, EngineError) or not isinstance(answer, BaseException):
                found[name] = answer
            else:
                wrong.append(answer)
        down = [answer for answer in found.values() if isinstance(answer, EngineError)]
        fleet = cls(dict(zip(names, targets, strict=True)), found, ask)
        if wrong or len(down) == len(names):
            await fleet.close()
            raise [*wrong, *down][0]
        return fleet

    @property
    def names(self) -> tuple[str, ...]:
        """Of all engines, in the order in which they were given."""
        return tuple(self._targets)

    @property
    def first(self) -> EngineServer:
        """The first engine that is up: what the others are compared with."""
        return next(iter(self._servers.values()))

    @property
    def notices(self) -> tuple[str, ...]:
        """What an operator has to know of engines that are down."""
        return tuple(f"The engine {name} is left out until it answers: {why}" for name, why in self._down.items())

    async def check(self, served: Served, now: datetime) -> str:
        """Whether all of them serve the same model, and read text as our tokenizer does.

        Returns: a notice where that cannot be asked, else empty.
        Raises: CallerError `engines_differ` or `tokenizer_parity`.
        """
        notices = [await self._checked(name, server, served, now) for name, server in self._servers.items()]
        return next(filter(None, notices), "")

    def pool(self, served: Served, now: Callable[[], datetime], returned: Returned) -> EnginePool:
        """All of them as one engine.

        Args:
            served: the model, whose tokenizer each is to speak.
            now: the clock.
            returned: told when an engine comes back that may have been started again.
        """
        members: list[Member] = []
        for name in self.names:
            server = self._servers.get(name)
            engine = None if server is None else server.speaking(served.tokenizer)
            reopen = None if name == EMBEDDED else self._reopening(name, served, now)
            members.append(Member(name, engine, reopen, returned, self._down.get(name, "")))
        return EnginePool(members)

    async def close(self) -> None:
        """Let go of all of them."""
        for server in self._servers.values():
            await server.close()

    def _reopening(self, name: str, served: Served, now: Callable[[], datetime]) -> Callable[[], Awaitable[Engine]]:
        async def reopen() -> Engine:
            server = await self._ask(self._targets[name])
            try:
                await self._checked(name, server, served, now())
            except BaseException:
                await server.close()
                raise
            return server.speaking(served.tokenizer)

        return reopen

    async def _checked(self, name: str, server: EngineServer, served: Served, now: datetime) -> str:
        if server is not self.first:
            _refuse_others(name, server.capabilities, next(iter(self._servers)), self.first.capabilities)
        try:
            return await check_parity(server, served, now)
        except CallerError as other:
            if len(self._targets) == 1:
                raise
            raise CallerError(f"{name}: {other.problem}", other.remedy, code=other.code) from other


def _refuse_others(name: str, found: Capabilities, first_name: str, first: Capabilities) -> None:
    if different := differences(first, found):
        raise CallerError(
            f"The engine {name} does not serve what {first_name} serves: {'; '.join(different)}",
            "Start all engines of one Turnstile alike, with the same model, version and flags",
            code="engines_differ",
        )
