"""A line between Turnstile and an engine that breaks in every way that bytes can: it knows HTTP/1.1 and no engine.

Requests for `path` are treated as `next` says, once; all others pass.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Treat = Callable[["Exchange"], Coroutine[Any, Any, None]]
_MIB = 1 << 20


@dataclass
class Exchange:
    """One request whose head has come, and the two ends that it has."""

    line: BadLine
    head: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def body(self) -> bytes:
        """The request's body."""
        return await self.reader.readexactly(_length(self.head))

    async def answer(self) -> tuple[bytes, bytes]:
        """The engine's honest answer: head and body."""
        return await self.line.ask(self.head, await self.body())

    async def send(self, *pieces: bytes) -> None:
        """Write to Turnstile."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    def reset(self) -> None:
        """Break the connection: what was not read is lost."""
        self.writer.transport.abort()

    async def hang(self) -> None:
        """Do nothing until Turnstile hangs up."""
        while await self.reader.read(1 << 16):
            pass


@dataclass
class BadLine:
    """See the module."""

    engine: str
    path: str
    url: str = ""
    next: Treat | None = None
    served: int = 0
    """How many requests were treated badly."""
    open: int = 0
    """Connections of Turnstile's now."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @contextmanager
    def in_thread(self) -> Generator[BadLine]:
        """Serve beside the caller."""
        ready, stop = threading.Event(), asyncio.Event()

        async def serve() -> None:
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=_MIB)
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            ready.set()
            await stop.wait()
            server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        thread = threading.Thread(target=self._loop.run_until_complete, args=(serve(),), daemon=True)
        thread.start()
        assert ready.wait(10)
        yield self
        self._loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                exchange = Exchange(self, head, reader, writer)
                treat, is_ours = self.next, head.split(b" ", 2)[1].decode() == self.path
                if treat is None or not is_ours:
                    await exchange.send(*await exchange.answer())
                    continue
                self.next = None
                self.served += 1
                await treat(exchange)
                return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            self.open -= 1
            writer.close()

    async def ask(self, head: bytes, body: bytes) -> tuple[bytes, bytes]:
        """What the engine answers."""
        url = urlsplit(self.engine)
        reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=_MIB)
        writer.write(head + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        content = await reader.readexactly(_length(answer))
        writer.close()
        return answer, content


def _length(head: bytes) -> int:
    lines = head.lower().split(b"\r\n")
    return next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)


def _head(length: int | None, *more: str, status: str = "200 OK", kind: str = "application/json") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", *more]
    lines += [] if length is None else [f"content-length: {length}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def says(head: bytes, *body: bytes) -> Treat:
    """Answer with these bytes and close."""

    async def treat(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.send(head, *body)

    return treat


def cut(share: float, *, of_head: bool = False, hangs: bool = False) -> Treat:
    """Answer honestly up to a share of the head or of the body, then break the connection, or hang."""

    async def treat(exchange: Exchange) -> None:
        head, body = await exchange.answer()
        sent = head[: int(len(head) * share)] if of_head else head + body[: int(len(body) * share)]
        await exchange.send(sent)
        await asyncio.sleep(0.05)
        await exchange.hang() if hangs else exchange.reset()

    return treat


async def reset_before_the_body(exchange: Exchange) -> None:
    """Break the connection with the request's head read and no more."""
    exchange.reset()


async def hang_at_once(exchange: Exchange) -> None:
    """Read and never answer."""
    await exchange.hang()


async def trickle(exchange: Exchange) -> None:
    """The honest answer, a byte a piece."""
    for piece in await exchange.answer():
        for at in range(len(piece)):
            exchange.writer.write(piece[at : at + 1])
            if at % 64 == 0:
                await asyncio.sleep(0)
        await exchange.writer.drain()


def changed(**fields: Any) -> Treat:
    """The honest answer with some members replaced; a member that is a function is given what was there."""

    async def treat(exchange: Exchange) -> None:
        _, body = await exchange.answer()
        said = json.loads(body)
        for name, value in fields.items():
            said[name] = value(said.get(name)) if callable(value) else value
        written = json.dumps(said).encode()
        await exchange.send(_head(len(written)), written)

    return treat


async def endless(exchange: Exchange) -> None:
    """A body without an end, as fast as it is taken."""
    await exchange.body()
    await exchange.send(_head(None, "transfer-encoding: chunked"))
    piece = b"%x\r\n%s\r\n" % (_MIB, b" " * _MIB)
    while True:
        await exchange.send(piece)


async def bomb(exchange: Exchange) -> None:
    """A small body that unpacks to more than any answer is long."""
    await exchange.body()
    packed = await asyncio.to_thread(gzip.compress, b" " * (160 * _MIB), 6)
    await exchange.send(_head(len(packed), "content-encoding: gzip"), packed)


_GARBAGE = bytes(range(256)) * 40

BROKEN: dict[str, Treat] = {
    "resets before the body": reset_before_the_body,
    "resets without an answer": cut(0.0, of_head=True),
    "resets in the head": cut(0.5, of_head=True),
    "resets behind the head": cut(0.0),
    "resets in the body": cut(0.5),
    "resets before the last byte": cut(0.99),
    "speaks no HTTP": says(_GARBAGE),
    "speaks HTTP/0.9": says(b"hello\n"),
    "has a head without an end": says(b"HTTP/1.1 200 OK\r\n" + b"x-pad: " + b"a" * (2 * _MIB)),
    "says less than its length": says(_head(1000), b"{}"),
    "is chunked wrongly": says(_head(None, "transfer-encoding: chunked"), b"zz\r\n{}\r\n0\r\n\r\n"),
    "says nothing": says(_head(0)),
    "says 204": says(_head(None, status="204 No Content")),
    "says no JSON": says(_head(9), b'{"tokens"'),
    "says no UTF-8": says(_head(len(_GARBAGE)), _GARBAGE),
    "nests too deeply": says(_head(200_000), b"[" * 100_000 + b"]" * 100_000),
    "says null": says(_head(4), b"null"),
    "says a list": says(_head(2), b"[]"),
    "says a page": says(_head(20, kind="text/html"), b"<html>welcome</html>"),
    "says 500": says(_head(4, status="500 Oops"), b"oops"),
    "says 500 at length": says(_head(8 * _MIB, status="500 Oops"), *([b"<p>no" + b" " * (_MIB - 5)] * 8)),
    "says 502 of a balancer": says(_head(11, status="502 Bad Gateway", kind="text/html"), b"bad gateway"),
    "redirects": says(_head(0, "location: http://127.0.0.1:9/elsewhere", status="302 Found")),
    "redirects to itself": says(_head(0, "location: /completion", status="307 Temporary Redirect")),
    "switches protocols": says(_head(None, "upgrade: websocket", "connection: upgrade", status="101 Switching")),
    "never ends": endless,
    "is a bomb": bomb,
    "says it is packed": says(_head(2, "content-encoding: gzip"), b"{}"),
    "counts wrongly": changed(tokens_predicted=lambda count: count + 1),
    "samples ids that are none": changed(tokens=lambda ids: [*ids[:-1], 10**12]),
    "samples negative ids": changed(tokens=lambda ids: [-1 for _ in ids]),
    "samples texts": changed(tokens=lambda ids: [str(each) for each in ids]),
    "samples too many": changed(tokens=lambda ids: ids * 500),
    "has NaN": changed(completion_probabilities=lambda rows: [{**row, "prob": float("nan")} for row in rows]),
    "has infinity": changed(completion_probabilities=lambda rows: [{**row, "prob": float("inf")} for row in rows]),
    "read another prompt": changed(tokens_evaluated=lambda count: count + 7),
    "ends in no way that there is": changed(stop_type="none"),
}
"""What no answer can come of. Those that are about members know llama.cpp's."""

SILENT: dict[str, Treat] = {
    "hangs without an answer": hang_at_once,
    "hangs in the head": cut(0.5, of_head=True, hangs=True),
    "hangs behind the head": cut(0.0, hangs=True),
    "hangs in the body": cut(0.5, hangs=True),
}
"""What never ends by itself: nobody can tell it from an engine that thinks."""

DOUBTFUL: dict[str, Treat] = {
    "has numbers of others": changed(completion_probabilities=lambda rows: [{**row, "id": 3} for row in rows]),
    "has fewer numbers": changed(completion_probabilities=lambda rows: rows[:-1]),
}
"""What has its ids and not all its numbers: an answer for the agent, of which a trainer is told what is missing."""
