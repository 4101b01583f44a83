"""Pooled HTTP to an engine: whole requests, whole answers, and errors that say what to do.

No read deadline by default: a prompt of 100,000 tokens on a small machine is silent for minutes, and cutting it
would sample it twice. Closing the connection is how these engines are told to stop, and cancelling a request
closes it.
"""

from __future__ import annotations

import os
import ssl

import aiohttp
import msgspec

from turnstile.errors import EngineError

CONNECT_TIMEOUT_S = 10.0
ANSWER_LIMIT_BYTES = 128 * 1024 * 1024
"""More than the largest honest answer: a full vocabulary row of 256k entries is about 30 MB."""
_CHUNK_BYTES = 1 << 18


class WireAnswer(msgspec.Struct, frozen=True):
    """An answer as it came."""

    status: int
    body: bytes


class Wire:
    """One engine's address and its connections."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self._session = session
        self._base_url = base_url.rstrip("/")

    @classmethod
    def open(cls, base_url: str, api_key: str = "") -> Wire:
        """Make a client for an address; nothing is sent yet. Needs a running event loop."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        )
        return cls(session, base_url)

    @property
    def base_url(self) -> str:
        """Where the engine answers, without a slash at the end."""
        return self._base_url

    def move_to(self, base_url: str) -> None:
        """Send what follows to another address: the engine was started again."""
        self._base_url = base_url.rstrip("/")

    async def get(self, path: str) -> WireAnswer:
        """Ask. Raises: EngineError `engine_unreachable` if no whole answer came."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: bytes) -> WireAnswer:
        """Send JSON and take the answer. Raises: EngineError `engine_unreachable` if no whole answer came."""
        return await self._ask("POST", path, body)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _ask(self, method: str, path: str, body: bytes | None) -> WireAnswer:
        try:
            return await self._once(method, path, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as problem:
            # An idle connection may be closed by the engine at the very moment it is used again. Not one byte of
            # an answer came then, so nothing is lost if the request goes out once more.
            if isinstance(problem, aiohttp.ClientConnectorError):
                raise self._unreachable(problem) from problem
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise self._unreachable(problem) from problem
        try:
            return await self._once(method, path, body)
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise self._unreachable(problem) from problem

    async def _once(self, method: str, path: str, body: bytes | None) -> WireAnswer:
        headers = {"content-type": "application/json"} if body is not None else {}
        async with self._session.request(
            method,
            self._base_url + path,
            data=body,
            headers=headers,
            allow_redirects=False,
        ) as response:
            pieces: list[bytes] = []
            size = 0
            async for piece in response.content.iter_chunked(_CHUNK_BYTES):
                pieces.append(piece)
                size += len(piece)
                if size > ANSWER_LIMIT_BYTES:
                    raise EngineError(
                        f"The engine at {self._base_url} sent more than {ANSWER_LIMIT_BYTES} bytes for {path}",
                        remedy="Check that the address is an inference engine's",
                        code="engine_broken",
                    )
            return WireAnswer(response.status, b"".join(pieces))

    def _unreachable(self, problem: Exception) -> EngineError:
        cause = _cause(problem)
        if isinstance(problem, (aiohttp.ClientConnectorError, aiohttp.InvalidURL, TimeoutError)):
            return EngineError(
                f"No engine answers at {self._base_url} ({cause})",
                remedy="Start the engine, or give its address with --engine",
                code="engine_unreachable",
                status=503,
            )
        return EngineError(
            f"The engine at {self._base_url} broke the connection before its answer was whole ({cause})",
            remedy="Look into the engine's own log; send the request again when it is up",
            code="engine_unreachable",
        )


def _cause(problem: Exception) -> str:
    """What went wrong in the system's own words, without the library's account of its sockets."""
    match problem:
        case aiohttp.ClientConnectorCertificateError():
            return str(problem.certificate_error)
        case aiohttp.ClientConnectorError(os_error=ssl.SSLError() as failed):
            return f"TLS failed: {failed.reason or failed}"
        case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))) if number > 0:
            return os.strerror(number)
        case aiohttp.ClientConnectorError(os_error=OSError(strerror=str(said))):
            return said
        case _:
            return str(problem) or type(problem).__name__
