"""What answers besides agents' calls: liveness, figures and the model list."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnstile.engines.base import Missing, Present
from turnstile.engines.pool import EngineFigures
from turnstile.errors import CallerError
from turnstile.exchange.policy_log import EnginePolicy
from turnstile.exchange.rollouts import Rollouts
from turnstile.exchange.world import World
from turnstile.protocols.anthropic_models import anthropic_model_body, anthropic_models_body, is_anthropic_client
from turnstile.protocols.gemini_models import gemini_model_body, gemini_models_body
from turnstile.protocols.models import model_body, models_body
from turnstile.server.agents import request_headers
from turnstile.server.dialects import speaks_gemini
from turnstile.server.entrance import Entrance
from turnstile.server.keys import named_rollout
from turnstile.server.observers import Observers, figures_of
from turnstile.server.policy import Policy
from turnstile.templates.accelerators import Accelerated
from turnstile.templates.advice import summary


class Liveness(msgspec.Struct, frozen=True):
    """The answer to GET /healthz for whoever has no key that opens more."""

    status: str
    """`ok` or `degraded`."""


_PATIENCE_S = 1.0
"""How long an answer about health waits for what the engines say now."""


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


class Figures(msgspec.Struct, frozen=True):
    """What is counted, and what was announced."""

    observers: Observers
    policy: Policy


class _Catalogue(msgspec.Struct, frozen=True):
    """How a dialect says which models are served, given their names."""

    every: Callable[[Sequence[str]], bytes]
    one: Callable[[Sequence[str], str], bytes]


_ANTHROPIC = _Catalogue(anthropic_models_body, anthropic_model_body)
_GEMINI = _Catalogue(gemini_models_body, gemini_model_body)
_OPENAI = _Catalogue(models_body, model_body)


class Desktop:
    """What answers besides agents' calls: liveness, figures and the model list."""

    def __init__(self, world: World, rollouts: Rollouts, entrance: Entrance, figures: Figures) -> None:
        self._world = world
        self._rollouts = rollouts
        self._entrance = entrance
        self._keys = entrance.keys
        self._observers = figures.observers
        self._policy = figures.policy

    async def alive(self, _: Request) -> Response:
        """GET /livez: that the process answers at all, and nothing else."""
        return _json(Liveness("ok"), 200)

    async def health(self, request: Request) -> Response:
        """GET /healthz: how everything is, as far as that can be told at once."""
        with contextlib.suppress(TimeoutError):
            # An engine that is slow to say how it is keeps nobody waiting: what it said last holds.
            async with asyncio.timeout(_PATIENCE_S):
                await self._world.engine.health()
        engines, policy = figures_of(self._world.engine), self._policy.page().engines
        trouble = bool(engines) and not any(each.is_up for each in engines)
        reasons = self._observers.vitals.reasons()
        if not self._is_readers(request):
            return _json(Liveness("degraded" if reasons else "ok"), 503 if trouble else 200)
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
            engines=engines,
            policy=policy,
        )
        return _json(health, 503 if trouble else 200)

    def _is_readers(self, request: Request) -> bool:
        """Whether the engines, their addresses and their troubles may be told: an agent should not find them."""
        try:
            self._keys.check_reader(request.headers)
        except CallerError:
            return False
        return True

    async def figures(self, request: Request) -> Response:
        """GET /metrics."""
        self._keys.check_reader(request.headers)
        return Response(await asyncio.to_thread(self._observers.metrics.text), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        await self._entrance.admit(request)
        return _listed(request, _catalogue(request).every((self._world.served.model,)))

    async def model(self, request: Request) -> Response:
        """GET /v1/models/NAME."""
        await self._entrance.admit(request)
        return _listed(request, _catalogue(request).one((self._world.served.model,), request.path_params["model"]))


def _catalogue(request: Request) -> _Catalogue:
    if is_anthropic_client(request.headers):
        return _ANTHROPIC
    return _GEMINI if speaks_gemini(request.url.path, request.headers) else _OPENAI


def _listed(request: Request, body: bytes) -> Response:
    return Response(body, media_type="application/json", headers=request_headers(named_rollout(request)))


def _json(value: msgspec.Struct, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
