"""How a server ends: running calls get a little time, then they are given up and their clients told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import final

import uvicorn

CANCELLED_AFTER_S = 5
"""When uvicorn itself breaks off what still runs; a client would get no answer in its dialect then."""
GIVEN_UP_AFTER_S = 2.0


@final
class Server(uvicorn.Server):
    """A uvicorn server that gives up running calls soon enough for their clients to be answered."""

    def __init__(
        self, config: uvicorn.Config, give_up: Callable[[], None], begun: Callable[[], None] = lambda: None
    ) -> None:
        """Serve an application.

        Args:
            config: uvicorn's settings.
            give_up: ends every running call.
            begun: told when requests are answered.
        """
        super().__init__(config)
        self._give_up = give_up
        self._begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._begun()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, wait for those that are being answered, then end the application."""
        later = asyncio.get_running_loop().call_later(GIVEN_UP_AFTER_S, self._give_up)
        try:
            await super().shutdown(sockets)
        finally:
            later.cancel()
