"""What whoever runs rollouts talks to: open, close, list, read."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response

from turnstile.conversation import Image
from turnstile.errors import CallerError
from turnstile.exchange.images import Gallery
from turnstile.exchange.policy_log import Announcement
from turnstile.exchange.rollouts import Ending, Opening, Rollouts, fresh_rollout_id
from turnstile.history.forest import Forest
from turnstile.journal import RolloutStatus
from turnstile.reports.drift_sources import drift_of_forest
from turnstile.reports.drift_watch import DriftWatch, attempt_of
from turnstile.reports.shelf import ModelShelf
from turnstile.reports.summary import Summary, summarise
from turnstile.server.agents import Limits, read_body
from turnstile.server.desktop import Figures
from turnstile.server.disk import Disk
from turnstile.server.keys import Keys, mint_agent_key
from turnstile.server.logs import LogValue
from turnstile.server.upkeep import Upkeep
from turnstile.store import Exported, Reader, RolloutSummary
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.format import encode_line

T = TypeVar("T")
BodyT = TypeVar("BodyT", bound=msgspec.Struct)
_DIGITS = 19
_LONGEST_HOLD_S = 86_400
DRIFT_PATIENCE_S = 1.0
"""How long the answer to a finish waits for prompts that are still being compared."""
Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Opened(msgspec.Struct, frozen=True):
    """The answer to POST /rollouts."""

    rollout_id: str
    attempt: int
    agent_key: str
    base_url: str
    openai_base_url: str
    anthropic_base_url: str


class Holding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /policy/hold."""

    deadline_s: Annotated[float, msgspec.Meta(gt=0, le=_LONGEST_HOLD_S)]
    engine: str = ""


class Releasing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /policy/release."""

    engine: str = ""


class Listing(msgspec.Struct, frozen=True):
    """The answer to GET /rollouts."""

    rollouts: tuple[RolloutSummary, ...]
    next: int | None
    """Send as `after` for the next page; null on the last."""


class Archive(msgspec.Struct, frozen=True):
    """What is known beside the open rollouts: those on disk, the models that they were rendered with, and drift."""

    reader: Reader
    shelf: ModelShelf
    watch: DriftWatch
    disk: Disk
    """Where all of it lies."""
    upkeep: Upkeep
    """What looks after the store."""
    gallery: Gallery | None = None
    """The bytes of images; None: there are none."""


class Operators:
    """The handlers, one a call of the contract."""

    def __init__(self, rollouts: Rollouts, archive: Archive, keys: Keys, figures: Figures, limits: Limits) -> None:
        self._rollouts = rollouts
        self._reader = archive.reader
        self._shelf = archive.shelf
        self._watch = archive.watch
        self._gallery = archive.gallery
        self._keys = keys
        self._policy = figures.policy
        self._observers = figures.observers
        self._limits = limits

    async def open(self, request: Request) -> Response:
        """POST /rollouts."""
        opening = await self._read(request, Opening)
        rollout_id = opening.rollout_id or fresh_rollout_id()
        key = mint_agent_key(rollout_id)
        rollout = await self._rollouts.create(msgspec.structs.replace(opening, rollout_id=rollout_id), key)
        base = f"{str(request.base_url).rstrip('/')}/r/{rollout_id}"
        answer = Opened(rollout_id, rollout.opened.attempt, key, base, f"{base}/v1", base)
        return _json(answer, status=201)

    async def list(self, request: Request) -> Response:
        """GET /rollouts."""
        self._keys.check_reader(request.headers)
        query = request.query_params
        status = query.get("status")
        if status is not None and status not in set(RolloutStatus):
            raise CallerError(f"`{status[:40]}` is no status", f"Use one of {', '.join(RolloutStatus)}", param="status")
        exported = query.get("exported")
        if exported is not None and exported not in set(Exported):
            raise CallerError(f"`exported` is `{exported[:40]}`", "Send `yes` or `no`", param="exported")
        limit = _number(query.get("limit", "100"), "limit", 1, 1000)
        page = await asyncio.to_thread(
            self._reader.rollouts,
            group_id=query.get("group_id"),
            task_id=query.get("task_id"),
            status=RolloutStatus(status) if status else None,
            exported=Exported(exported) if exported else None,
            after=_number(query.get("after", "0"), "after", 0, 2**62),
            limit=limit,
        )
        return _json(Listing(tuple(page), page[-1].number if len(page) == limit else None))

    async def show(self, request: Request) -> Response:
        """GET /rollouts/ID."""
        return _json(await self._from_journal(request, self._summary))

    async def finish(self, request: Request) -> Response:
        """POST /rollouts/ID/finish."""
        ending = await self._read(request, Ending)
        rollout = await self._rollouts.finish(request.path_params["rollout_id"], ending, self._limits.finish_patience_s)
        answer = _json(await asyncio.to_thread(self._final_summary, rollout.forest))
        # Nobody waits for the figures.
        answer.background = BackgroundTask(self._observers.metrics.closed, rollout.forest)
        return answer

    async def trajectory(self, request: Request) -> Response:
        """GET /rollouts/ID/trajectory."""
        line = await self._from_journal(request, lambda forest: encode_line(assemble(forest)))
        return Response(line, media_type="application/json")

    async def media(self, request: Request) -> Response:
        """GET /rollouts/ID/media/SHA256: an image that the rollout was shown."""
        sha256 = request.path_params["sha256"]
        shown = await self._from_journal(request, lambda forest: _shown(forest, sha256))
        if shown is None or self._gallery is None:
            raise CallerError(
                f"The rollout was shown no image `{sha256[:80]}`",
                "Take a `sha256` from the `media` of its trajectory",
                code="media_not_found",
                status=404,
            )
        found = await self._gallery.media_of(shown)
        # The bytes are an agent's: no browser is to guess that they are a page.
        return Response(found.data, media_type=shown.media_type, headers={"x-content-type-options": "nosniff"})

    async def drift(self, request: Request) -> Response:
        """GET /rollouts/ID/drift."""
        return _json(await self._from_journal(request, lambda forest: drift_of_forest(forest, self._shelf)))

    def _summary(self, forest: Forest) -> Summary:
        return summarise(forest, self._watch.figures(attempt_of(forest)))

    def _final_summary(self, forest: Forest) -> Summary:
        return summarise(forest, self._watch.settled(attempt_of(forest), DRIFT_PATIENCE_S))

    async def announce(self, request: Request) -> Response:
        """POST /policy."""
        announcement = await self._read(request, Announcement)
        await self._policy.announce(announcement)
        said: dict[str, LogValue] = {"version": announcement.version, "label": announcement.label}
        self._tell("policy_announced", {"engine": announcement.engine, **said})
        return _json(announcement)

    async def hold(self, request: Request) -> Response:
        """POST /policy/hold."""
        holding = await self._read(request, Holding)
        page = await self._policy.hold(holding.engine, holding.deadline_s)
        self._tell("policy_held", {"engine": holding.engine, "deadline_s": holding.deadline_s})
        return _json(page)

    async def release(self, request: Request) -> Response:
        """POST /policy/release."""
        releasing = await self._read(request, Releasing)
        page = await self._policy.release(releasing.engine)
        self._tell("policy_released", {"engine": releasing.engine})
        return _json(page)

    async def policy(self, request: Request) -> Response:
        """GET /policy."""
        self._keys.check_reader(request.headers)
        return _json(self._policy.page())

    def _tell(self, event: str, fields: dict[str, LogValue]) -> None:
        self._observers.log.tell(event, fields)

    async def _read(self, request: Request, kind: type[BodyT]) -> BodyT:
        self._keys.check_operator(request.headers)
        body = await read_body(request, self._limits.max_body_bytes)
        try:
            return msgspec.json.decode(body or b"{}", type=kind)
        except (msgspec.DecodeError, RecursionError) as wrong:
            raise _unusable(str(wrong), kind) from None

    async def _from_journal(self, request: Request, work: Callable[[Forest], T]) -> T:
        """Do work on a rollout as the journal has it, away from the event loop."""
        self._keys.check_reader(request.headers)
        opened = (await self._rollouts.get(request.path_params["rollout_id"])).opened
        # By its number: were this attempt deleted meanwhile, the latest would be another, or none.
        records = self._reader.records(opened.rollout_id, opened.attempt)
        return await asyncio.to_thread(lambda: work(Forest.of(records)))


def _shown(forest: Forest, sha256: str) -> Image | None:
    images = (shown for state in forest.calls.values() for shown in state.started.images)
    return next((Image(each.sha256, each.media_type) for each in images if each.sha256 == sha256), None)


def _unusable(wrong: str, kind: type[msgspec.Struct]) -> CallerError:
    """The error for a body that is not of a kind, in msgspec's words, with what may stand there."""
    located = re.search(r" - at `\$\.(\w+)", wrong)
    remedy = f"Send a JSON object of {', '.join(kind.__struct_fields__)}; docs/reference/http.md says what each may be"
    if wrong.startswith("Invalid enum value"):
        # Of all bodies only an ending has a closed list.
        remedy = f"Use one of {', '.join(each for each in RolloutStatus if each is not RolloutStatus.RUNNING)}"
    return CallerError(f"The body cannot be used: {wrong}", remedy, param=located[1] if located else "")


def _number(text: str, name: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS) or not least <= int(text) <= most:
        raise CallerError(f"`{name}` is `{text[:20]}`", f"Send a number from {least} to {most}", param=name)
    return int(text)


def _json(value: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")
