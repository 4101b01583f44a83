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

    def __init__(self, config: uvicorn.Config, give_up: Callable[[], None]) -> None:
        """Serve an application.

        Args:
            config: uvicorn's settings.
            give_up: ends every running call.
        """
        super().__init__(config)
        self._give_up = give_up

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more requests, wait for those that are being answered, then end the application."""
        later = asyncio.get_running_loop().call_later(GIVEN_UP_AFTER_S, self._give_up)
        try:
            await super().shutdown(sockets)
        finally:
            later.cancel()
