"""The ASGI application: routes, and who owns the tasks."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from datetime import datetime
from typing import TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from turnstile.config import Settings
from turnstile.engines.base import Engine, Missing, Present
from turnstile.engines.pool import EngineFigures, EnginePool, Pace
from turnstile.errors import CallerError, TurnstileError
from turnstile.exchange.policy_log import EnginePolicy
from turnstile.exchange.rollouts import OpenRollout, Rollouts
from turnstile.exchange.world import World
from turnstile.protocols import COUNTERS, DIALECTS
from turnstile.protocols.anthropic_models import anthropic_model_body, anthropic_models_body, is_anthropic_client
from turnstile.protocols.base import Dialect
from turnstile.protocols.gemini_models import gemini_model_body, gemini_models_body
from turnstile.protocols.models import model_body, models_body
from turnstile.server.agents import Desk, Limits, Line, request_headers
from turnstile.server.counting import Counting
from turnstile.server.dialects import address_of, dialect_of, route_of, speaks_gemini
from turnstile.server.engine_metrics import EngineMetrics
from turnstile.server.keys import Keys, agent_headers, named_rollout, presented_key, rollout_named_by, wrong_agent_key
from turnstile.server.metrics import Metrics
from turnstile.server.operators import Archive, Operators
from turnstile.server.policy import Policy
from turnstile.server.remote_images import RemoteImages, listed_hosts
from turnstile.templates.accelerators import Accelerated
from turnstile.templates.advice import summary

Refuse: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]


class Health(msgspec.Struct, frozen=True):
    """The answer to GET /healthz."""

    status: str
    """`ok`, or `degraded` with the reasons."""
    reasons: tuple[str, ...]
    engine: str
    engine_version: str
    engine_can: tuple[Present, ...]
    """What the engine was seen to do at start."""
    engine_lacks: tuple[Missing, ...]
    """What it does not do, what that costs, and the flag that turns it on."""
    model: str
    open_rollouts: int
    template: str
    """The class of the template's certificate; empty if it was not checked."""
    template_limits: tuple[str, ...]
    """What of the template is limited, in sentences; never a reason to be degraded."""
    patterns: dict[str, int]
    """How many patterns of requests are known: `certified`, and those first met in use by their verdict."""
    accelerated: Accelerated
    """What renders and what encodes, and why an accelerator that is installed does not."""
    engines: tuple[EngineFigures, ...] = ()
    """Each engine."""
    policy: tuple[EnginePolicy, ...] = ()
    """Which weights each of them has, as announced."""


class _Gate:
    """Finds the rollout that a request of an agent belongs to, and checks its key."""

    def __init__(self, rollouts: Rollouts, keys: Keys) -> None:
        self._rollouts = rollouts
        self._keys = keys

    @property
    def keys(self) -> Keys:
        """What keys open."""
        return self._keys

    async def rollout(self, request: Request) -> OpenRollout:
        """Raises: CallerError 401 or 404."""
        headers = agent_headers(request)
        key = presented_key(headers)
        rollout_id = request.path_params.get("rollout_id") or rollout_named_by(key)
        if not rollout_id:
            raise CallerError(
                "The request names no rollout",
                "Use a base URL that ends in /r/ROLLOUT_ID, or the rollout's agent key as API key",
                code="rollout_not_named",
                status=401 if self._keys.required else 404,
            )
        if not self._keys.required:
            return await self._rollouts.get_or_create(rollout_id)
        try:
            rollout = await self._rollouts.get(rollout_id)
        except CallerError:
            raise wrong_agent_key() from None
        self._keys.check_agent(headers, rollout)
        return rollout

    async def known(self, request: Request) -> OpenRollout | None:
        """The rollout that a question is about; where no keys are asked for, none begins by a question.

        Raises: CallerError 401.
        """
        if self._keys.required:
            return await self.rollout(request)
        rollout_id = request.path_params.get("rollout_id") or rollout_named_by(presented_key(agent_headers(request)))
        try:
            return await self._rollouts.get(rollout_id) if rollout_id else None
        except CallerError:
            return None

    async def admit(self, request: Request) -> None:
        """Let a look at the models pass; where no keys are asked for, it begins no rollout (public case J3).

        Raises: CallerError 401.
        """
        if self._keys.required:
            await self.rollout(request)


class _AgentRoute:
    """One path of one dialect, as an ASGI application."""

    def __init__(self, dialect: Dialect, path: str, gate: _Gate) -> None:
        self._dialect = dialect
        self._path = path
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            rollout = await self._gate.rollout(request)
        except TurnstileError as error:
            await Line(send, named_rollout(request)).refuse(self._dialect, error)
            return
        desk: Desk = scope["state"]["desk"]
        await desk.serve(request, send, self._dialect, rollout, address_of(self._path, request))


class _Figures(msgspec.Struct, frozen=True):
    """What is counted, and what was announced."""

    metrics: Metrics
    policy: Policy


class _Desktop:
    """What answers besides agents' calls: liveness, figures and the model list."""

    def __init__(self, world: World, rollouts: Rollouts, gate: _Gate, figures: _Figures) -> None:
        self._world = world
        self._rollouts = rollouts
        self._gate = gate
        self._keys = gate.keys
        self._metrics = figures.metrics
        self._policy = figures.policy

    async def health(self, request: Request) -> Response:
        """GET /healthz."""
        trouble = await self._world.engine.health()
        engines, policy = _figures_of(self._world.engine), self._policy.page().engines
        reasons = tuple(filter(None, (trouble, *_limited(engines, policy, self._world.now()))))
        certificate, engine = self._world.certificate, self._world.engine.capabilities
        health = Health(
            status="degraded" if reasons else "ok",
            reasons=reasons,
            engine=engine.engine,
            engine_version=engine.version,
            engine_can=engine.present,
            engine_lacks=engine.missing,
            model=self._world.served.model,
            open_rollouts=len(self._rollouts),
            template=certificate.certificate_class.value if certificate is not None else "",
            template_limits=summary(certificate) if certificate is not None else (),
            patterns=self._world.served.pattern_counts(),
            accelerated=self._world.accelerated,
            engines=engines if self._is_operators(request) else (),
            policy=policy if self._is_operators(request) else (),
        )
        return Response(msgspec.json.encode(health), 503 if trouble else 200, media_type="application/json")

    def _is_operators(self, request: Request) -> bool:
        """Whether the addresses of engines may be told: an agent should not find them."""
        try:
            self._keys.check_operator(request.headers)
        except CallerError:
            return False
        return True

    async def figures(self, request: Request) -> Response:
        """GET /metrics."""
        self._keys.check_operator(request.headers)
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        await self._gate.admit(request)
        served = (self._world.served.model,)
        if is_anthropic_client(request.headers):
            body = anthropic_models_body(served)
        elif speaks_gemini(request.url.path, request.headers):
            body = gemini_models_body(served)
        else:
            body = models_body(served)
        return Response(body, media_type="application/json", headers=request_headers(named_rollout(request)))

    async def model(self, request: Request) -> Response:
        """GET /v1/models/NAME."""
        await self._gate.admit(request)
        served, name = (self._world.served.model,), request.path_params["model"]
        if is_anthropic_client(request.headers):
            body = anthropic_model_body(served, name)
        elif speaks_gemini(request.url.path, request.headers):
            body = gemini_model_body(served, name)
        else:
            body = model_body(served, name)
        return Response(body, media_type="application/json", headers=request_headers(named_rollout(request)))


def _figures_of(engine: Engine) -> tuple[EngineFigures, ...]:
    return tuple(engine.figures()) if isinstance(engine, EnginePool) else ()


def _limited(engines: tuple[EngineFigures, ...], policy: tuple[EnginePolicy, ...], now: datetime) -> Iterator[str]:
    """What does not work as it should while calls are served all the same, in sentences."""
    if any(each.is_up for each in engines):
        yield from (f"The engine {each.name} is down: {each.problem}" for each in engines if not each.is_up)
    for each in policy:
        if each.held_until is not None and each.held_until <= now:
            yield f"Calls of the engine {each.engine} are refused: they were held, and the deadline passed."


def build_app(world: World, rollouts: Rollouts, archive: Archive, policy: Policy, settings: Settings) -> Starlette:
    """The whole HTTP surface of contract.md over ready-made parts."""
    keys = Keys(settings.admin_key)
    metrics = Metrics(lambda: len(rollouts))
    archive.watch.tell(metrics.compared)
    if isinstance(world.engine, EnginePool):
        metrics.registry.register(EngineMetrics(world.engine, policy))
    limits = Limits(
        settings.max_body_bytes, settings.keep_alive_s, settings.grace_s, settings.finish_patience_s, _remote(settings)
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[dict[str, Desk]]:
        async with asyncio.TaskGroup() as calls, _watched(world.engine):
            yield {"desk": Desk(world, rollouts, calls, limits, metrics)}
            rollouts.abandon_running()

    gate = _Gate(rollouts, keys)
    desktop = _Desktop(world, rollouts, gate, _Figures(metrics, policy))
    routes: list[BaseRoute] = [
        Route("/healthz", desktop.health, methods=["GET"]),
        Route("/metrics", desktop.figures, methods=["GET"]),
        *_operator_routes(Operators(rollouts, archive, keys, policy, limits)),
        *_count_routes(Counting(world, gate.known, limits)),
        *_agent_routes(desktop, gate),
    ]
    refusals: dict[int | type[Exception], Refuse] = {
        TurnstileError: _refuse,
        404: _no_route,
        405: _no_route,
        Exception: _broken,
    }
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=refusals)
    # A redirect would name a host that the client made up, and no SDK sends its key and body there again.
    app.router.redirect_slashes = False
    return app


def _remote(settings: Settings) -> RemoteImages:
    return RemoteImages(listed_hosts(settings.media_allow), max_bytes=settings.max_body_bytes, most=settings.max_images)


@contextlib.asynccontextmanager
async def _watched(engine: Engine) -> AsyncGenerator[None]:
    """Look after engines for as long as the block runs."""
    async with asyncio.TaskGroup() as watching:
        task = watching.create_task(engine.watch(Pace())) if isinstance(engine, EnginePool) else None
        yield
        if task is not None:
            task.cancel()


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


def _agent_routes(desktop: _Desktop, gate: _Gate) -> list[Route]:
    routes: list[Route] = []
    for base in _BASES:
        for version in ("/v1", "/v1beta"):
            routes.append(Route(f"{base}{version}/models", desktop.models, methods=["GET"]))
            routes.append(Route(f"{base}{version}/models/{{model:path}}", desktop.model, methods=["GET"]))
        for dialect in DIALECTS:
            routes += [
                Route(f"{base}{route_of(path)}", _AgentRoute(dialect, path, gate), methods=["POST"])
                for path in dialect.paths
            ]
    return routes


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, TurnstileError)
    body = dialect_of(request.url.path, request.headers).refuse(error)
    headers = request_headers(named_rollout(request))
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
