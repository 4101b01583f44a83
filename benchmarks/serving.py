"""Run an ASGI app as a process of its own, on the libraries that Turnstile's server uses."""

from __future__ import annotations

import json
import socket

import uvicorn
from starlette.applications import Starlette


class _Announcing(uvicorn.Server):
    """Says where it listens as soon as it does: one JSON line on stdout."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)


def serve(app: Starlette) -> None:
    """Serve on a free port of loopback until the process is ended."""
    config = uvicorn.Config(
        app,
        port=0,
        loop="uvloop",
        http="httptools",
        access_log=False,
        log_level="warning",
        timeout_keep_alive=600,
        timeout_graceful_shutdown=1,
    )
    _Announcing(config).run()
