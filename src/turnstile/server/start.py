"""From settings to a running server: what is refused first, and the socket it listens on."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import AsyncGenerator
from datetime import UTC, datetime

import msgspec
import uvicorn

from turnstile.config import Settings, check_numbers, choice_of
from turnstile.errors import CallerError
from turnstile.server.assembly import Running, ShowProgress, assemble
from turnstile.server.http_edge import BoundedHttp
from turnstile.server.keys import check_keys
from turnstile.server.local_files import local_files
from turnstile.server.logs import LogForm, LogValue, logging_to
from turnstile.server.origins import allowed_hosts
from turnstile.server.settings_line import told_settings
from turnstile.server.severing import unlogged
from turnstile.server.stopping import CANCELLED_AFTER_S, Server
from turnstile.version import __version__


@contextlib.asynccontextmanager
async def listening(
    settings: Settings, show: ShowProgress
) -> AsyncGenerator[tuple[Running, uvicorn.Server, socket.socket]]:
    """A server with its socket bound, ready for `serve`; everything is closed on leaving.

    What a person may have got wrong is looked at before an engine is asked, and the store is made last: a start that
    fails leaves none behind.

    Raises: CallerError on settings that contradict each other, StoreError, EngineError, ModelFilesError.
    """
    check_numbers(settings)
    _refuse_open_doors(settings)
    local = local_files(settings)
    async with contextlib.AsyncExitStack() as stack:
        log = stack.enter_context(logging_to(*_log_to(settings), lambda: datetime.now(UTC)))
        stack.enter_context(unlogged())
        bound = stack.enter_context(contextlib.closing(_bind(settings)))
        app, running, rollouts = await assemble(settings, local, show, log, stack)
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            loop="none",
            http=BoundedHttp,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=CANCELLED_AFTER_S,
            timeout_keep_alive=75,
        )
        _listen(bound, settings)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        url = f"http://{host}:{bound.getsockname()[1]}"
        told: dict[str, LogValue] = {"url": url, "model": running.model, "engine": running.engine}
        begun = {**told, "version": __version__, **told_settings(settings)}
        stack.callback(log.tell, "shutdown", told)
        server = Server(config, rollouts.abandon_running, lambda: log.tell("start", begun))
        yield msgspec.structs.replace(running, url=url), server, bound


def _log_to(settings: Settings) -> tuple[int, LogForm]:
    """Where the log goes, and in which form."""
    form = choice_of(LogForm, settings.log, "log")
    if form is LogForm.OFF or sys.stderr is None:
        return -1, LogForm.OFF
    if form is LogForm.AUTO:
        form = LogForm.TEXT if sys.stderr.isatty() else LogForm.JSON
    return sys.stderr.fileno(), form


def _refuse_open_doors(settings: Settings) -> None:
    check_keys(settings.admin_key, settings.read_key)
    allowed_hosts(settings.allow_hosts)
    loopback = settings.host in ("localhost", "::1") or settings.host.startswith("127.")
    if not settings.admin_key and not loopback:
        raise CallerError(
            f"Without an admin key Turnstile serves loopback only, not `{settings.host}`",
            "Set --admin-key or TURNSTILE_ADMIN_KEY, or leave --host out",
            code="admin_key_needed",
        )


def _bind(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((settings.host, settings.port))
    except OSError as error:
        bound.close()
        raise _port_taken(settings, error) from error
    return bound


def _listen(bound: socket.socket, settings: Settings) -> None:
    """Take connections, now that there is somebody to answer them."""
    try:
        bound.listen(1024)
    except OSError as error:
        raise _port_taken(settings, error) from error


def _port_taken(settings: Settings, error: OSError) -> CallerError:
    return CallerError(
        f"Cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
        "Stop what listens there, or choose another --port (0 = any free one)",
        code="port_taken",
    )
