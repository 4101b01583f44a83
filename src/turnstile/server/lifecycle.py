"""The ends of a rollout behind its end: that it left, and that it is deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnstile.errors import CallerError
from turnstile.exchange.refusals import kept, not_found
from turnstile.exchange.rollouts import Rollouts
from turnstile.server.agents import read_body
from turnstile.server.keys import Keys
from turnstile.server.upkeep import Upkeep
from turnstile.store.deletion import Kept, Standing, Unexported
from turnstile.store.exports import ExportMark
from turnstile.store.tombstones import Tombstone

_LONGEST_BODY = 64 * 1024
_ATTEMPT = re.compile(r"[1-9][0-9]{0,9}")


class Leaving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /rollouts/ID/exported."""

    to: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    """Where it is now, in words: a file, a trainer."""
    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)] | None = None
    """None: the latest."""


class Left(msgspec.Struct, frozen=True):
    """The answer to POST /rollouts/ID/exported."""

    rollout_id: str
    attempt: int
    exported_to: str
    exported_at: datetime


class Deleted(msgspec.Struct, frozen=True):
    """The answer to DELETE /rollouts/ID."""

    deleted: tuple[Tombstone, ...]
    """One for each attempt that went."""


@final
class Lifecycle:
    """The handlers."""

    def __init__(self, rollouts: Rollouts, upkeep: Upkeep, keys: Keys, now: Callable[[], datetime]) -> None:
        self._rollouts = rollouts
        self._upkeep = upkeep
        self._keys = keys
        self._now = now

    async def delete(self, request: Request) -> Response:
        """DELETE /rollouts/ID."""
        self._keys.check_operator(request.headers)
        query = request.query_params
        unexported = query.get("unexported", Unexported.KEEP)
        if unexported not in set(Unexported):
            raise CallerError(
                f"`unexported` is `{unexported[:40]}`", "Send `unexported=delete`, or leave it out", param="unexported"
            )
        attempt = query.get("attempt")
        if attempt is not None and not _ATTEMPT.fullmatch(attempt):
            raise CallerError(f"`attempt` is `{attempt[:20]}`", "Send its number, from 1", param="attempt")
        stones = await self._rollouts.delete(
            request.path_params["rollout_id"], int(attempt) if attempt else None, Unexported(unexported)
        )
        self._upkeep.went(stones)
        return _json(Deleted(stones))

    async def exported(self, request: Request) -> Response:
        """POST /rollouts/ID/exported."""
        self._keys.check_operator(request.headers)
        try:
            leaving = msgspec.json.decode(await read_body(request, _LONGEST_BODY), type=Leaving)
        except msgspec.DecodeError as wrong:
            raise CallerError(f"The body cannot be used: {wrong}", "Send `to`, and `attempt` if you like") from None
        opened = (await self._rollouts.get(request.path_params["rollout_id"])).opened
        left = ExportMark(opened.rollout_id, leaving.attempt or opened.attempt, leaving.to, self._now())
        if await self._upkeep.mark(left):
            return _json(Left(left.rollout_id, left.attempt, left.destination, left.exported_at))
        if left.attempt == opened.attempt:
            raise kept(left.rollout_id, Kept(left.attempt, Standing.OPEN))
        raise not_found(f"{left.rollout_id}#{left.attempt}")


def _json(value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
