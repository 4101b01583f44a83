"""The ASGI application: routes, and who owns the tasks."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from functools import partial
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from turnstile.config import Settings
from turnstile.engines.base import Engine
from turnstile.engines.pool import EnginePool, Pace
from turnstile.errors import CallerError, TurnstileError
from turnstile.exchange.rollouts import Rollouts
from turnstile.exchange.world import World
from turnstile.protocols import COUNTERS, DIALECTS
from turnstile.protocols.base import Dialect
from turnstile.protocols.sizes import CallLimits
from turnstile.server.agents import Desk, Limits, Line, request_headers
from turnstile.server.counting import Counting
from turnstile.server.desktop import Desktop, Figures
from turnstile.server.dialects import address_of, dialect_of, route_of
from turnstile.server.disk import Disk
from turnstile.server.entrance import Entrance
from turnstile.server.keys import Keys, named_rollout
from turnstile.server.lifecycle import Lifecycle
from turnstile.server.observers import Observers
from turnstile.server.operators import Archive, Operators
from turnstile.server.origins import Doorkeeper, allowed_hosts
from turnstile.server.remote_images import RemoteImages, listed_hosts
from turnstile.server.retry_after import retry_after
from turnstile.server.room_metrics import RoomMetrics
from turnstile.server.sealing import in_full, sealed
from turnstile.server.severing import StreamSevered
from turnstile.server.upkeep_metrics import UpkeepMetrics
from turnstile.server.visit import Reception

Refuse: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]


class _AgentRoute:
    """One path of one dialect, as an ASGI application."""

    def __init__(self, dialect: Dialect, path: str, entrance: Entrance) -> None:
        self._dialect = dialect
        self._path = path
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        desk: Desk = scope["state"]["desk"]
        visit = desk.reception.visit(self._dialect, self._path, request)
        try:
            await self._answer(request, Line(send, visit, desk.told), desk)
        except StreamSevered:
            raise
        except Exception:
            visit.broke()
            raise
        finally:
            visit.leave(desk.reception.tell)

    async def _answer(self, request: Request, line: Line, desk: Desk) -> None:
        try:
            rollout = await self._entrance.rollout(request)
        except TurnstileError as error:
            await line.refuse(error)
            return
        await desk.serve(request, line, rollout, address_of(self._path, request))


def build_app(world: World, rollouts: Rollouts, archive: Archive, figures: Figures, settings: Settings) -> Starlette:
    """The whole HTTP surface of contract.md over ready-made parts."""
    keys = Keys(settings.admin_key, settings.read_key)
    observers = figures.observers
    observers.metrics.registry.register(RoomMetrics(world.places, archive.disk))
    observers.metrics.registry.register(UpkeepMetrics(archive.upkeep))
    reception = Reception(observers.reporter.call, observers.tracing)
    limits = _limits(settings, archive.disk)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[dict[str, Desk]]:
        watched = _watched(world.engine, archive.disk, observers)
        upkeep = partial(archive.upkeep.watch, world.now, observers.metrics.closed)
        async with asyncio.TaskGroup() as calls, watched, _kept_up(upkeep):
            yield {"desk": Desk(world, rollouts, calls, limits, reception)}
            rollouts.abandon_running()

    entrance = Entrance(rollouts, keys)
    desktop = Desktop(world, rollouts, entrance, figures)
    routes: list[BaseRoute] = [
        Route("/livez", desktop.alive, methods=["GET"]),
        Route("/healthz", desktop.health, methods=["GET"]),
        Route("/metrics", desktop.figures, methods=["GET"]),
        *_operator_routes(Operators(rollouts, archive, keys, figures, limits)),
        *_lifecycle_routes(Lifecycle(rollouts, archive.upkeep, keys, world.now)),
        *_count_routes(Counting(world, entrance.known, limits)),
        *_agent_routes(desktop, entrance),
    ]
    refusals: dict[int | type[Exception], Refuse] = {
        TurnstileError: _refusing(keys),
        404: _no_route,
        405: _no_route,
        Exception: _broken,
    }
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=refusals)
    # A redirect would name a host that the client made up, and no SDK sends its key and body there again.
    app.router.redirect_slashes = False
    if not keys.required:
        app.add_middleware(Doorkeeper, allowed=allowed_hosts(settings.allow_hosts), refuse=_refuse)
    return app


def _limits(settings: Settings, disk: Disk) -> Limits:
    nesting = settings.max_json_nesting
    return Limits(
        max_body_bytes=settings.max_body_bytes,
        keep_alive_s=settings.keep_alive_s,
        grace_s=settings.grace_s,
        finish_patience_s=settings.finish_patience_s,
        remote=_remote(settings),
        told=sealed if settings.admin_key else in_full,
        call=CallLimits(
            settings.max_messages, settings.max_parts, settings.max_tools, settings.max_tools_bytes, nesting
        ),
        check_call=disk.check_call,
    )


def _remote(settings: Settings) -> RemoteImages:
    return RemoteImages(listed_hosts(settings.media_allow), max_bytes=settings.max_body_bytes, most=settings.max_images)


@contextlib.asynccontextmanager
async def _watched(engine: Engine, disk: Disk, observers: Observers) -> AsyncGenerator[None]:
    """Look after engines, the disk and the server itself for as long as the block runs."""
    async with asyncio.TaskGroup() as watching:
        tasks = [watching.create_task(disk.watch()), watching.create_task(observers.watch())]
        if isinstance(engine, EnginePool):
            tasks.append(watching.create_task(engine.watch(Pace())))
        yield
        for task in tasks:
            task.cancel()


@contextlib.asynccontextmanager
async def _kept_up(upkeep: Callable[[], Coroutine[None, None, None]]) -> AsyncGenerator[None]:
    """Look after the store for as long as the block runs."""
    async with asyncio.TaskGroup() as watching:
        task = watching.create_task(upkeep())
        yield
        task.cancel()


def _lifecycle_routes(lifecycle: Lifecycle) -> list[Route]:
    return [
        Route("/rollouts/{rollout_id}", lifecycle.delete, methods=["DELETE"]),
        Route("/rollouts/{rollout_id}/exported", lifecycle.exported, methods=["POST"]),
    ]


def _operator_routes(operators: Operators) -> list[Route]:
    return [
        Route("/rollouts", operators.open, methods=["POST"]),
        Route("/rollouts", operators.list, methods=["GET"]),
        Route("/rollouts/{rollout_id}", operators.show, methods=["GET"]),
        Route("/rollouts/{rollout_id}/finish", operators.finish, methods=["POST"]),
        Route("/rollouts/{rollout_id}/trajectory", operators.trajectory, methods=["GET"]),
        Route("/rollouts/{rollout_id}/media/{sha256}", operators.media, methods=["GET"]),
        Route("/rollouts/{rollout_id}/drift", operators.drift, methods=["GET"]),
        Route("/policy", operators.announce, methods=["POST"]),
        Route("/policy", operators.policy, methods=["GET"]),
        Route("/policy/hold", operators.hold, methods=["POST"]),
        Route("/policy/release", operators.release, methods=["POST"]),
    ]


_BASES = ("/r/{rollout_id}", "")
"""Under a rollout's base URL, and without one for clients whose key names the rollout."""


def _count_routes(counting: Counting) -> list[Route]:
    return [
        Route(f"{base}{route_of(path)}", counting.of(counter, path), methods=["POST"])
        for base in _BASES
        for counter in COUNTERS
        for path in counter.paths
    ]


def _agent_routes(desktop: Desktop, entrance: Entrance) -> list[Route]:
    routes: list[Route] = []
    for base in _BASES:
        for version in ("/v1", "/v1beta"):
            routes.append(Route(f"{base}{version}/models", desktop.models, methods=["GET"]))
            routes.append(Route(f"{base}{version}/models/{{model:path}}", desktop.model, methods=["GET"]))
        for dialect in DIALECTS:
            routes += [
                Route(f"{base}{route_of(path)}", _AgentRoute(dialect, path, entrance), methods=["POST"])
                for path in dialect.paths
            ]
    return routes


def _refusing(keys: Keys) -> Refuse:
    """The answer to errors, which tells those in full who may read everything."""

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, TurnstileError)
        return await _refuse(request, error if keys.may_read(request.headers) else sealed(error))

    return refuse


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, TurnstileError)
    body = dialect_of(request.url.path, request.headers).refuse(error)
    headers = {**request_headers(named_rollout(request)), **retry_after(error)}
    return Response(body, status_code=error.status, media_type="application/json", headers=headers)


_NOT_SERVED = re.compile(
    r"(?:/r/[^/]+)?(?P<path>(?:/v1)?/(?:responses/\w+|completions|embeddings)|/v1(?:beta)?/models/[^/]+:\w+)(?:/.*)?"
)
"""Paths of dialects that agents speak and Turnstile does not: others of OpenAI's and Google's."""


async def _no_route(request: Request, _: Exception) -> Response:
    path = request.url.path[:200]
    problem, remedy = (
        f"Nothing answers {request.method} {path}",
        "Use /r/ROLLOUT_ID/v1/... for agents and /rollouts for their runner",
    )
    if request.method == "POST" and (found := _NOT_SERVED.fullmatch(path)):
        problem = f"`{found['path']}` is not served in this version"
        remedy = "Use /v1/chat/completions, /v1/responses, /v1/messages or /v1beta/models/MODEL:generateContent"
    elif "/v1/v1" in path:
        remedy = "Leave /v1 out of the client's base URL: this client adds it itself"
    error = CallerError(problem, remedy, code="not_found", status=404)
    return await _refuse(request, error)


async def _broken(request: Request, bug: Exception) -> Response:
    """What a client is told of a bug; the server's log gets the traceback."""
    return await _refuse(
        request, TurnstileError(f"Turnstile failed inside: {type(bug).__name__}", "Please report it with the log")
    )
