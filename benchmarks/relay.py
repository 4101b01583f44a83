"""The least that a proxy can do: the same server and client libraries as Turnstile, bytes on, bytes back."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator

import aiohttp
from serving import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def relay(upstream: str) -> Starlette:
    """An app that sends every chat completion on to `upstream`."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            app.state.session = session
            yield

    async def forward(request: Request) -> Response:
        body = await request.body()
        headers = {"content-type": "application/json"}
        async with request.app.state.session.post(upstream + request.url.path, data=body, headers=headers) as answer:
            return Response(await answer.read(), answer.status, media_type="application/json")

    return Starlette(routes=[Route("/v1/chat/completions", forward, methods=["POST"])], lifespan=lifespan)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--upstream", required=True)
    serve(relay(options.parse_args().upstream))
