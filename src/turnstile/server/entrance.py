"""Which rollout a request of an agent belongs to, and whether its key opens it."""

from __future__ import annotations

from starlette.requests import Request

from turnstile.errors import CallerError
from turnstile.exchange.rollouts import OpenRollout, Rollouts, closed
from turnstile.server.keys import Keys, agent_headers, presented_key, rollout_named_by, wrong_agent_key


class Entrance:
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
            return await self._open(request)
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
            await self._open(request)

    async def _open(self, request: Request) -> OpenRollout:
        """The rollout of a key whose rights have not ended: at its end a rollout's key opens nothing any more.

        A call that comes after the end is told so too, and recorded, behind this door (`Desk.serve`).
        """
        rollout = await self.rollout(request)
        if rollout.closing:
            raise closed(rollout.opened.rollout_id)
        return rollout
