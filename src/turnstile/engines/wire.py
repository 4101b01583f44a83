"""Pooled HTTP to an engine: whole requests, answers whole or as they come, and errors that say what to do.

No read deadline by default: a prompt of 100,000 tokens on a small machine is silent for minutes, and cutting it
would sample it twice. Closing the connection is how these engines are told to stop, and cancelling a request
closes it.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import TypeVar

import aiohttp
import msgspec

from turnstile.engines.event_stream import EventReader
from turnstile.errors import EngineError

T = TypeVar("T")

TRACE_HEADERS: ContextVar[Mapping[str, str]] = ContextVar("trace_headers", default=MappingProxyType({}))
"""What a request to an engine says of the trace that it belongs to; empty unless traces are made. Of an agent's own
headers none is ever passed on."""
CONNECT_TIMEOUT_S = 10.0
ANSWER_LIMIT_BYTES = 128 * 1024 * 1024
"""More than the largest honest answer: a full vocabulary row of 256k entries is about 30 MB."""
_CHUNK_BYTES = 1 << 18
_KEY_WRONG = frozenset((401, 403))
_OK = 200
_SHOWN_BYTES = 200


class WireAnswer(msgspec.Struct, frozen=True):
    """An answer as it came."""

    status: int
    body: bytes


class WireStream:
    """An answer that is still coming in. Read it once: as `events`, or `whole` where an error's page is expected."""

    def __init__(
        self, response: aiohttp.ClientResponse, unreachable: Callable[[Exception], EngineError], api_key: str
    ) -> None:
        self._response = response
        self._unreachable = unreachable
        self._api_key = api_key

    @property
    def status(self) -> int:
        """The HTTP status, which is known before anything else."""
        return self._response.status

    @property
    def is_events(self) -> bool:
        """Whether it says to be a stream of server-sent events."""
        return self._response.content_type == "text/event-stream"

    async def events(self) -> AsyncGenerator[bytes]:
        """The data of each event as it comes. A stream that was cut off ends as one that was not: look for its end.

        Raises: EngineError `engine_unreachable` if the connection broke, `engine_broken` if an event is too large.
        """
        reader = EventReader()
        try:
            async for piece in self._response.content.iter_any():
                for event in reader.feed(piece):
                    yield event
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise self._unreachable(problem) from problem

    async def whole(self) -> WireAnswer:
        """All of it. Raises: EngineError `engine_unreachable` or `engine_broken`."""
        try:
            return await _whole(self._response, self._api_key)
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise self._unreachable(problem) from problem


class Wire:
    """One engine's address and its connections."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str, api_key: str) -> None:
        self._session = session
        self._base_url = base_url.rstrip("/")
        self._api_key = api_key

    @classmethod
    def open(cls, base_url: str, api_key: str = "") -> Wire:
        """Make a client for an address; nothing is sent yet. Needs a running event loop."""
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        )
        return cls(session, base_url, api_key)

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

    async def health(self, engine: str) -> str:
        """Empty if `/health` answers 200, else what is wrong with the engine of that name, as a sentence."""
        try:
            answer = await self.get("/health")
        except EngineError as problem:
            return str(problem)
        return "" if answer.status == 200 else f"{engine} is not ready: status {answer.status}."

    @contextlib.asynccontextmanager
    async def stream(self, path: str, body: bytes) -> AsyncGenerator[WireStream]:
        """Send JSON and read the answer while it comes. Leaving the block before its end closes the connection.

        Raises: EngineError `engine_unreachable` if no answer began.
        """
        response = await self._retried(lambda: self._begun("POST", path, body))
        try:
            yield WireStream(response, self._unreachable, self._api_key)
        finally:
            response.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _ask(self, method: str, path: str, body: bytes | None) -> WireAnswer:
        return await self._retried(lambda: self._once(method, path, body))

    async def _retried(self, once: Callable[[], Awaitable[T]]) -> T:
        try:
            return await once()
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as problem:
            # An idle connection may be closed by the engine at the very moment it is used again. Not one byte of
            # an answer came then, so nothing is lost if the request goes out once more.
            if isinstance(problem, aiohttp.ClientConnectorError):
                raise self._unreachable(problem) from problem
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise self._unreachable(problem) from problem
        try:
            return await once()
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise self._unreachable(problem) from problem

    async def _begun(self, method: str, path: str, body: bytes | None) -> aiohttp.ClientResponse:
        headers = {"content-type": "application/json"} if body is not None else {}
        headers |= TRACE_HEADERS.get()
        return await self._session.request(
            method,
            self._base_url + path,
            data=body,
            headers=headers,
            allow_redirects=False,
        )

    async def _once(self, method: str, path: str, body: bytes | None) -> WireAnswer:
        response = await self._begun(method, path, body)
        try:
            return await _whole(response, self._api_key)
        finally:
            response.close()

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


def refused(engine: str, status: int, said: str, remedy: str) -> EngineError:
    """The error for an error status.

    A key that an engine does not take is Turnstile's, not the agent's: an agent that were told 401 would blame its
    own, so it is told 502.

    Args:
        engine: whose answer it is.
        status: 400 or more.
        said: the engine's words; may be empty.
        remedy: what to do, unless it is the key.

    Returns: `engine_refused` with the engine's status, or `engine_key_refused`.
    """
    told = f"status {status}: {said or 'no message'}"
    if status in _KEY_WRONG:
        return EngineError(
            f"{engine} refused the key that Turnstile sent, or asks for one, with {told}",
            remedy="Give Turnstile the engine's key in TURNSTILE_ENGINE_API_KEY or TURNSTILE_ENGINE_API_KEYS",
            code="engine_key_refused",
        )
    return EngineError(f"{engine} refused the request with {told}", remedy=remedy, code="engine_refused", status=status)


def json_as(body: bytes, shape: type[T], broken: Callable[[str], EngineError]) -> T:
    """JSON as `shape`.

    Args:
        body: what the engine sent.
        shape: what it should be.
        broken: makes the engine's own error from what is wrong.

    Raises: what `broken` makes, naming the field.
    """
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as problem:
        raise broken(str(problem)) from problem
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise broken(f"it is not JSON ({problem}; it starts with {body[:60]!r})") from problem


def words_of(body: bytes, most_bytes: int = _SHOWN_BYTES) -> str:
    """What an error's page says that is not the engine's JSON: its beginning, or that it is a page of HTML."""
    text = body[:most_bytes].decode(errors="replace").strip()
    return "a page of HTML" if text.startswith("<") else text


async def _whole(response: aiohttp.ClientResponse, api_key: str) -> WireAnswer:
    """A whole answer. A refusal that repeats the key that it was sent says so without it: it is told and kept."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_chunked(_CHUNK_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > ANSWER_LIMIT_BYTES:
            # The error's traceback holds this frame for as long as anybody holds the error.
            pieces.clear()
            raise EngineError(
                f"The engine at {response.url.origin()} sent more than {ANSWER_LIMIT_BYTES} bytes "
                f"for {response.url.path}",
                remedy="Check that the address is an inference engine's",
                code="engine_broken",
            )
    body = b"".join(pieces)
    if api_key and response.status != _OK:
        body = body.replace(api_key.encode(), b"[key]")
    return WireAnswer(response.status, body)


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
