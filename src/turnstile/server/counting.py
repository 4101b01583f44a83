"""Questions for a prompt's length: answered from what is held, recorded nowhere (public case J2)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from turnstile.exchange.images import expanded_length
from turnstile.exchange.prompts import prompt_for
from turnstile.exchange.rollouts import OpenRollout
from turnstile.exchange.world import World
from turnstile.history.forest import Forest
from turnstile.journal import RolloutOpened
from turnstile.protocols.base import TokenCounter, WireRequest
from turnstile.protocols.models import check_model
from turnstile.protocols.quirks import apply
from turnstile.server.agents import Limits, read_body, request_headers
from turnstile.server.apart import apart
from turnstile.server.dialects import address_of
from turnstile.server.keys import named_rollout

FindRollout = Callable[[Request], Awaitable[OpenRollout | None]]


class Counting:
    """Answers how many tokens the next prompt of a rollout would have."""

    def __init__(self, world: World, find: FindRollout, limits: Limits) -> None:
        """Count for the rollouts that `find` knows; it begins none."""
        self._world = world
        self._find = find
        self._limits = limits

    def of(self, counter: TokenCounter, path: str) -> Callable[[Request], Awaitable[Response]]:
        """The handler of one path.

        Raises: CallerError as the call itself would.
        """

        async def count(request: Request) -> Response:
            rollout = await self._find(request)
            body = await read_body(request, self._limits.max_body_bytes)
            wire = WireRequest(body, dict(request.headers), address_of(path, request), dict(request.query_params))
            question = await apart(body, lambda: counter.decode(wire))
            check_model((self._world.served.model,), question.call.model)
            forest, opened = self._held(rollout)
            call = apply(self._world.quirks, question.call, request.headers)
            call = await self._limits.remote.fetched(call, forest, self._world.gallery)
            planned = await prompt_for(self._world, forest, opened, call)
            length = expanded_length(planned.prompt, planned.shown, forest)
            headers = request_headers(named_rollout(request))
            return Response(question.body_of(length), media_type="application/json", headers=headers)

        return count

    def _held(self, rollout: OpenRollout | None) -> tuple[Forest, RolloutOpened]:
        if rollout is not None:
            return rollout.forest, rollout.opened
        return Forest(), RolloutOpened(rollout_id="", attempt=1, opened_at=self._world.now())
