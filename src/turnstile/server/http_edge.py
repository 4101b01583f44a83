"""The bytes of a connection, before there is a request: bounded in length and in time (docs/decisions/0030).

uvicorn bounds neither the head of a request, nor what frames its body, nor how long a client takes to send them. A
client that never ends any of them would hold memory and a connection for ever.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast, final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from turnstile.errors import CallerError
from turnstile.protocols.openai_error import error_body

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

LONGEST_HEAD = 64 * 1024
"""Bytes of a request line with its headers, and of trailers."""
_FRAMES_A_BODY_BYTE = 8
"""A chunk of one byte is sent in six."""
HEAD_PATIENCE_S = 30.0
"""How long a request's head may take from its first byte, and a new connection's from its beginning."""


@final
class BoundedHttp(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with limits on what is no body. What breaks one is answered, and the connection closed."""

    _answering: RequestResponseCycle | None = None
    """The request that is being answered; further ones of a connection wait for it."""
    _timer: asyncio.TimerHandle | None = None
    _in_head = True
    _is_refused = False
    _received = 0
    """Bytes since the last request ended."""
    _of_body = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client is there: its first head is waited for."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: every request of it that is not answered yet is told so.

        uvicorn tells the last one only. Where a client sends several at once, the call of the first would go on, and
        its answer be written to what is no connection any more.
        """
        self._stop_waiting()
        super().connection_lost(exc)
        waiting = [cycle for cycle, _ in self.pipeline]
        self.pipeline.clear()
        for cycle in (self._answering, *waiting):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        """Bytes have come; none are read any more behind a request that was refused."""
        if self._is_refused:
            return
        if self._in_head and self._timer is None:
            self._wait_for_head()
        self._received += len(data)
        super().data_received(data)
        if self._received - self._of_body > LONGEST_HEAD + _FRAMES_A_BODY_BYTE * self._of_body:
            self._refuse_length()

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._in_head = False
        self._stop_waiting()
        # A head that comes in one piece is over before its pieces could be counted.
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > LONGEST_HEAD:
            self._refuse_length()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body has come."""
        self._of_body += len(body)
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._in_head = True
        self._received = self._of_body = 0
        if not self._is_refused:
            super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP."""
        self._refuse(
            CallerError(
                "The request is no valid HTTP", "Send HTTP/1.1, with either a length or chunks", code="invalid_http"
            )
        )

    def _wait_for_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_PATIENCE_S, self._refuse_slowness)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse_length(self) -> None:
        self._refuse(
            CallerError(
                f"The head of the request is longer than {LONGEST_HEAD} bytes",
                "Send fewer and shorter headers; what is long belongs into the body",
                code="head_too_large",
                status=431,
            )
        )

    def _refuse_slowness(self) -> None:
        self._timer = None
        if self._received == 0:
            # Nobody has asked for anything: clients open connections ahead of need.
            self.transport.close()
            return
        self._refuse(
            CallerError(
                f"The head of the request did not come within {HEAD_PATIENCE_S:g} s",
                "Send it again",
                code="request_too_slow",
                status=408,
            )
        )

    def _refuse(self, error: CallerError) -> None:
        """Answer and close; only close where the answer to an earlier request is what would be due first."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._stop_waiting()
        if self._may_answer():
            body = error_body(error)
            head = (
                b"content-type: application/json\r\n"
                b"content-length: %d\r\n"
                b"connection: close\r\n"
                b"\r\n" % len(body)
            )  # fmt: skip
            self.transport.write(STATUS_LINE[error.status] + head + body)
        self.transport.close()

    def _may_answer(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete:
            return True
        return cycle.more_body and not cycle.response_started and not self.pipeline
