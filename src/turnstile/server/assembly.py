"""From settings to the application: engine, tokenizer, journal, rollouts."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import secrets
import string
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import msgspec
from starlette.applications import Starlette

from turnstile.config import Settings, choice_of
from turnstile.engines import EmbeddedSettings, EngineKind, cache_home, connect
from turnstile.engines.base import Capabilities, Missing, Present
from turnstile.engines.pool import EnginePool
from turnstile.engines.smollm import Progress
from turnstile.exchange.draws import Overflow
from turnstile.exchange.holding import Gate, HoldExpiry
from turnstile.exchange.images import Gallery, ImageLimits
from turnstile.exchange.places import Places, Room
from turnstile.exchange.rollouts import Policies, Rollouts
from turnstile.exchange.world import World
from turnstile.generation import LiteralSpecials, Retention
from turnstile.journal import SuspectLogprobs
from turnstile.parsing.formats import AnswerFormat
from turnstile.reports.drift_watch import DriftWatch
from turnstile.reports.shelf import ModelShelf
from turnstile.server.app import build_app
from turnstile.server.certificates import AT_START_S, TooSlow, certificate_of, certificates_folder
from turnstile.server.clock import steady_clock
from turnstile.server.desktop import Figures
from turnstile.server.disk import Disk, Reserve
from turnstile.server.engine_keys import EngineKeys
from turnstile.server.fleet import Fleet, engine_names
from turnstile.server.keys import check_keys
from turnstile.server.local_files import LocalFiles, embedded_files
from turnstile.server.logs import Log
from turnstile.server.observers import Watched, observers
from turnstile.server.operators import Archive
from turnstile.server.otel import Otel, Traced, tracing_for
from turnstile.server.plugins import with_plugin
from turnstile.server.policy import Policy
from turnstile.server.reading import format_of, kept_name, read_by
from turnstile.server.tracing import Tracing
from turnstile.server.upkeep import Upkeep
from turnstile.server.vitals import Troubles
from turnstile.store import Blobs, Durability, Journal, Reader
from turnstile.store.pruning import Keep
from turnstile.store.siblings import Siblings
from turnstile.templates.accelerators import Accelerated, accelerated, at_hand
from turnstile.templates.advice import summary
from turnstile.templates.certificate import Certificate
from turnstile.templates.checks_tokens import Faster
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.plugins.base import Plugin
from turnstile.templates.proving import take_over
from turnstile.templates.served import Served
from turnstile.version import __version__

_CALL_ID_LETTERS = string.ascii_letters + string.digits
_CALL_ID_LENGTH = 9
"""Mistral's template refuses tool-call ids of any other length, and of other characters."""

_RENDER_THREADS = 2
_now = steady_clock()

ShowProgress: TypeAlias = Callable[[Progress], None]
"""Told how far the embedded model's download is."""


class Running(msgspec.Struct, frozen=True):
    """A server that answers."""

    url: str
    model: str
    engine: str
    notices: tuple[str, ...]
    """What an operator has to know: open doors, limits of the template, accelerators that are not used."""
    accelerated: Accelerated = Accelerated()
    """What renders and what encodes."""
    engine_version: str = ""
    engine_can: tuple[Present, ...] = ()
    """What the engine was seen to do."""
    engine_lacks: tuple[Missing, ...] = ()
    """What it does not do, what that costs, and the flag that turns it on."""


async def assemble(
    settings: Settings, local: LocalFiles, show: ShowProgress, log: Log, stack: contextlib.AsyncExitStack
) -> tuple[Starlette, Running, Rollouts]:
    """The application over its parts, what is told of it, and its rollouts; `stack` closes the parts.

    The store is made last: a start that fails leaves none behind.

    Raises: CallerError on a setting that cannot be, StoreError, EngineError, ModelFilesError.
    """
    fleet = await _connect(settings, show, stack)
    files = local.files or embedded_files(local, fleet.first)
    model = settings.model or fleet.first.capabilities.models[0]
    served = serve(files, model=model, stop_ids=frozenset())
    answer_format, reading = _format(settings.answer_format, files, fleet, served)
    unchecked = await fleet.check(served, _now())
    tracing = _tracing(settings, Traced(model, fleet.first.capabilities.engine, __version__), stack)
    stored = await _open_store(settings, stack)
    in_thread = functools.partial(asyncio.get_running_loop().run_in_executor, _rendering(stack))
    model_ready = await in_thread(lambda: _prepare(files, served, settings, local.plugin))
    policy = Policy.restored(stored.journal, stored.reader, fleet.names, _gate(settings))
    engine = _pool(fleet, served, policy, stack)
    world = World(
        served=model_ready.served,
        answer_format=answer_format,
        engine=engine,
        now=_now,
        mint_call_id=_mint_call_id,
        draw_seed=random.SystemRandom().randrange,
        off_loop=in_thread,
        certificate=model_ready.certified,
        answered=stored.watch.answered,
        quirks=local.quirks,
        accelerated=model_ready.accelerated,
        overflow=choice_of(Overflow, settings.overflow, "overflow"),
        gallery=Gallery(stored.blobs),
        image_limits=_image_limits(settings),
        policy=policy.log,
        gate=policy.gate,
        places=_places(settings, stored.disk),
        continuations=settings.continue_aborted,
    )
    await stored.keep(model_ready.running_on, files, kept_name(settings.answer_format, answer_format))
    rollouts = _rollouts(settings, stored, stack)
    upkeep = Upkeep(stored.journal, stored.reader, rollouts, _keep(settings))
    watched = Watched(rollouts, stored.journal, stored.watch, engine, policy, _now, stored.troubles(upkeep))
    figures = Figures(observers(log, tracing, watched), policy)
    app = build_app(world, rollouts, stored.archive(world.gallery, upkeep), figures, settings)
    others = (unchecked, reading, *stored.journal.incidents, *_without_window(world))
    told = (*fleet.notices, *_notices(settings, model_ready, *others))
    return app, _running(model, engine.capabilities, told, model_ready.accelerated), rollouts


def _tracing(settings: Settings, traced: Traced, stack: contextlib.AsyncExitStack) -> Tracing:
    tracing = tracing_for(choice_of(Otel, settings.otel, "otel"), os.environ, traced)
    stack.callback(tracing.close)
    return tracing


def _gate(settings: Settings) -> Gate:
    return Gate(_now, choice_of(HoldExpiry, settings.hold_expiry, "hold_expiry"))


def _image_limits(settings: Settings) -> ImageLimits:
    return ImageLimits(settings.max_images, int(settings.max_image_megapixels * 1_000_000))


class _Stored(msgspec.Struct, frozen=True):
    """What is kept, and what looks after it."""

    journal: Journal
    reader: Reader
    blobs: Blobs
    shelf: ModelShelf
    watch: DriftWatch
    disk: Disk

    def archive(self, gallery: Gallery | None, upkeep: Upkeep) -> Archive:
        """What operators may look up."""
        return Archive(self.reader, self.shelf, self.watch, self.disk, upkeep, gallery)

    async def keep(self, served: Served, files: ModelFiles, answer_format: str) -> None:
        """Put what a report needs of the model beside the records."""
        await self.shelf.put(self.journal, served, files, answer_format)

    def troubles(self, upkeep: Upkeep) -> dict[str, Troubles]:
        """Why the server is not well, by the reasons of `/healthz` that come of what is kept."""
        return {
            "disk_low": self.disk.troubles,
            "retention_failing": upkeep.troubles,
            "store_damaged": lambda: tuple(filter(None, (*self.journal.incidents, self.reader.damage_met))),
        }


async def _open_store(settings: Settings, stack: contextlib.AsyncExitStack) -> _Stored:
    journal = Journal.open(settings.store, durability=choice_of(Durability, settings.durability, "durability"))
    stack.callback(journal.close)
    reader = Reader.open(settings.store)
    stack.callback(reader.close)
    blobs = Blobs(settings.store)
    shelf = ModelShelf(reader, blobs)
    disk = Disk(settings.store, Reserve(settings.disk_reserve_bytes, settings.disk_floor_bytes))
    await disk.look()
    return _Stored(journal, reader, blobs, shelf, stack.enter_context(DriftWatch(shelf.served)), disk)


def _places(settings: Settings, disk: Disk) -> Places:
    room = Room(settings.max_calls, settings.max_calls_per_rollout, settings.max_waiting, settings.queue_s)
    return Places(room, disk.check_call)


def _rendering(stack: contextlib.AsyncExitStack) -> ThreadPoolExecutor:
    threads = ThreadPoolExecutor(_RENDER_THREADS, thread_name_prefix="turnstile-render")
    stack.callback(threads.shutdown)
    return threads


def _siblings(settings: Settings, stack: contextlib.AsyncExitStack) -> Siblings:
    siblings = Siblings(settings.siblings)
    stack.callback(siblings.close)
    return siblings


def _running(model: str, engine: Capabilities, notices: tuple[str, ...], chosen: Accelerated) -> Running:
    return Running("", model, engine.engine, notices, chosen, engine.version, engine.present, engine.missing)


def _keep(settings: Settings) -> Keep:
    return Keep(for_s=settings.keep_for_s or None, size_bytes=int(settings.keep_gb * 1e9) if settings.keep_gb else None)


def _format(name: str, files: ModelFiles, fleet: Fleet, served: Served) -> tuple[AnswerFormat, str]:
    return read_by(name, format_of(name, files), fleet.first.capabilities, served)


def _pool(fleet: Fleet, served: Served, policy: Policy, stack: contextlib.AsyncExitStack) -> EnginePool:
    engine = fleet.pool(served, _now, policy.forget)
    stack.push_async_callback(engine.close)
    return engine


def _rollouts(settings: Settings, stored: _Stored, stack: contextlib.AsyncExitStack) -> Rollouts:
    policies = _policies(settings, _siblings(settings, stack), stored.disk)
    return Rollouts(stored.journal, stored.reader, _now, policies)


def _policies(settings: Settings, siblings: Siblings, disk: Disk) -> Policies:
    return Policies(
        retention=choice_of(Retention, settings.retention, "retention"),
        suspect_logprobs=choice_of(SuspectLogprobs, settings.suspect_logprobs, "suspect_logprobs"),
        memory_bytes=settings.rollout_memory_bytes,
        held_elsewhere=siblings.holder,
        idle_timeout_s=settings.idle_timeout_s,
        may_begin=disk.check_rollout,
    )


class _Prepared(msgspec.Struct, frozen=True):
    """The model as its certificate, the accelerators at hand and the settings have it."""

    served: Served
    running_on: Served
    """The same without the settings: what a store keeps."""
    certificate: Certificate | TooSlow
    accelerated: Accelerated
    plugin_notices: tuple[str, ...]

    @property
    def certified(self) -> Certificate | None:
        """The certificate, if there was time for one."""
        return self.certificate if isinstance(self.certificate, Certificate) else None


def _prepare(files: ModelFiles, served: Served, settings: Settings, plugin: Plugin | None) -> _Prepared:
    faster = at_hand(files, served)
    certificate = _certificate(served, faster)
    certified = certificate if isinstance(certificate, Certificate) else None
    running_on, chosen = accelerated(served, certified, faster)
    if certified is not None:
        take_over(running_on, certified)
    asking, notices = running_on, ()
    if plugin is not None:
        asking, notice = with_plugin(running_on, plugin, certified)
        notices = (notice,)
    return _Prepared(_with_literals(asking, settings), running_on, certificate, chosen, notices)


def _certificate(served: Served, faster: Faster) -> Certificate | TooSlow:
    try:
        return certificate_of(served, certificates_folder(), limit_s=AT_START_S, faster=faster)
    except TooSlow as slow:
        return slow


def _with_literals(served: Served, settings: Settings) -> Served:
    if settings.literal_specials == LiteralSpecials.AS_TEXT:
        # The first use reads the vocabulary again, for a second or two: no request should wait for that.
        served.tokenizer.encode_as_text("")
    return served.with_literals(choice_of(LiteralSpecials, settings.literal_specials, "literal_specials"))


def _notices(settings: Settings, model: _Prepared, *others: str) -> tuple[str, ...]:
    notices: list[str] = []
    if not settings.admin_key:
        notices.append("No admin key: loopback only, no keys are asked for, rollouts begin with their first use")
    notices += check_keys(settings.admin_key, settings.read_key)
    certified = model.certified
    notices += summary(certified) if certified is not None else [f"Template: not certified. {model.certificate}"]
    return (*notices, *filter(None, others), *model.plugin_notices, *model.accelerated.refused)


def _without_window(world: World) -> tuple[str, ...]:
    if world.overflow is Overflow.CLAMP and world.engine.capabilities.context_length is None:
        return ("--overflow clamp does nothing: the engine does not say how long its window is",)
    return ()


async def _connect(settings: Settings, show: ShowProgress, stack: contextlib.AsyncExitStack) -> Fleet:
    embedded = EmbeddedSettings(cache_home(), settings.context_length, settings.slots)
    kind, targets = EngineKind(settings.engine_kind), (settings.engine, *settings.more_engines)
    keys = EngineKeys.read(settings.engine_api_key, settings.engine_api_keys, engine_names(targets))
    fleet = await Fleet.connect(
        targets,
        lambda target: connect(target, kind, keys.of(*engine_names((target,))), embedded=embedded, show=show),
    )
    stack.push_async_callback(fleet.close)
    return fleet


def _mint_call_id() -> str:
    return "".join(secrets.choice(_CALL_ID_LETTERS) for _ in range(_CALL_ID_LENGTH))
