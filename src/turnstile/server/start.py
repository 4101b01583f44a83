"""From settings to a running server: engine, tokenizer, journal, application."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import mmap
import random
import secrets
import socket
import string
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import msgspec
import uvicorn
from starlette.applications import Starlette

from turnstile.config import Settings, choice_of
from turnstile.engines import EMBEDDED, EmbeddedSettings, EngineKind, EngineServer, cache_home, connect
from turnstile.engines.base import Capabilities, Missing, Present
from turnstile.engines.smollm import Progress
from turnstile.errors import CallerError
from turnstile.exchange.draws import Overflow
from turnstile.exchange.holding import Gate, HoldExpiry
from turnstile.exchange.images import Gallery, ImageLimits
from turnstile.exchange.rollouts import Policies, Rollouts
from turnstile.exchange.world import World
from turnstile.generation import LiteralSpecials, Retention
from turnstile.journal import SuspectLogprobs
from turnstile.protocols.quirks import FileForm, Quirk, chosen_quirks, read_quirks
from turnstile.reports.drift_watch import DriftWatch
from turnstile.reports.shelf import ModelShelf
from turnstile.server.app import build_app
from turnstile.server.certificates import AT_START_S, TooSlow, certificate_of, certificates_folder, refuse_slow_template
from turnstile.server.fleet import Fleet, engine_names
from turnstile.server.operators import Archive
from turnstile.server.plugins import plugin_named, with_plugin
from turnstile.server.policy import Policy
from turnstile.server.reading import format_of, kept_name, read_by
from turnstile.server.severing import unlogged
from turnstile.server.stopping import CANCELLED_AFTER_S, Server
from turnstile.store import Blobs, Durability, Journal, Reader
from turnstile.store.siblings import Siblings
from turnstile.templates.accelerators import Accelerated, accelerated, at_hand
from turnstile.templates.advice import summary
from turnstile.templates.certificate import Certificate
from turnstile.templates.checks_tokens import Faster
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.gguf import tokenizer_files
from turnstile.templates.plugins.base import Plugin
from turnstile.templates.proving import take_over
from turnstile.templates.served import Served

_CALL_ID_LETTERS = string.ascii_letters + string.digits
_CALL_ID_LENGTH = 9
"""Mistral's template refuses tool-call ids of any other length, and of other characters."""

_RENDER_THREADS = 2

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


@contextlib.asynccontextmanager
async def listening(
    settings: Settings, show: ShowProgress
) -> AsyncGenerator[tuple[Running, uvicorn.Server, socket.socket]]:
    """A server with its socket bound, ready for `serve`; everything is closed on leaving.

    What a person may have got wrong is looked at before an engine is asked, and the store is made last: a start that
    fails leaves none behind.

    Raises: CallerError on settings that contradict each other, StoreError, EngineError, ModelFilesError.
    """
    _refuse_open_doors(settings)
    local = _local_files(settings)
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(unlogged())
        bound = stack.enter_context(contextlib.closing(_bind(settings)))
        app, running, rollouts = await _assemble(settings, local, show, stack)
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            loop="none",
            http="httptools",
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
        yield msgspec.structs.replace(running, url=url), Server(config, rollouts.abandon_running), bound


def _refuse_open_doors(settings: Settings) -> None:
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


async def _assemble(
    settings: Settings, local: _LocalFiles, show: ShowProgress, stack: contextlib.AsyncExitStack
) -> tuple[Starlette, Running, Rollouts]:
    fleet = await _connect(settings, show)
    stack.push_async_callback(fleet.close)
    files = local.files or _embedded_files(local, fleet.first)
    model = settings.model or fleet.first.capabilities.models[0]
    served = serve(files, model=model, stop_ids=frozenset())
    named = settings.answer_format
    answer_format, reading = read_by(named, format_of(named, files), fleet.first.capabilities, served)
    unchecked = await fleet.check(served, _now())
    journal, reader = _open_store(settings, stack)
    threads = ThreadPoolExecutor(_RENDER_THREADS, thread_name_prefix="turnstile-render")
    stack.callback(threads.shutdown)
    in_thread = functools.partial(asyncio.get_running_loop().run_in_executor, threads)
    shelf = ModelShelf(reader, Blobs(settings.store))
    watch = stack.enter_context(DriftWatch(shelf.served))
    faster = await in_thread(lambda: at_hand(files, served))
    certificate = await in_thread(lambda: _certificate(served, faster))
    running_on, chosen = accelerated(served, certificate if isinstance(certificate, Certificate) else None, faster)
    ready, plugin_notices = await in_thread(lambda: _ready(running_on, certificate, settings, local.plugin))
    policy = Policy.restored(journal, reader, fleet.names, _gate(settings))
    engine = fleet.pool(served, _now, policy.forget)
    stack.push_async_callback(engine.close)
    world = World(
        served=ready,
        answer_format=answer_format,
        engine=engine,
        now=_now,
        mint_call_id=_mint_call_id,
        draw_seed=random.SystemRandom().randrange,
        off_loop=in_thread,
        certificate=certificate if isinstance(certificate, Certificate) else None,
        answered=watch.answered,
        quirks=local.quirks,
        accelerated=chosen,
        overflow=choice_of(Overflow, settings.overflow, "overflow"),
        gallery=Gallery(Blobs(settings.store)),
        image_limits=_image_limits(settings),
        policy=policy.log,
        gate=policy.gate,
        continuations=settings.continue_aborted,
    )
    await shelf.put(journal, running_on, files, kept_name(named, answer_format))
    rollouts = Rollouts(journal, reader, _now, _policies(settings, _siblings(settings, stack)))
    app = build_app(world, rollouts, Archive(reader, shelf, watch, world.gallery), policy, settings)
    told = (*fleet.notices, *_notices(settings, certificate, unchecked, reading), *_without_window(world))
    return app, _running(model, engine.capabilities, (*told, *plugin_notices, *chosen.refused), chosen), rollouts


def _gate(settings: Settings) -> Gate:
    return Gate(_now, choice_of(HoldExpiry, settings.hold_expiry, "hold_expiry"))


def _image_limits(settings: Settings) -> ImageLimits:
    return ImageLimits(settings.max_images, int(settings.max_image_megapixels * 1_000_000))


def _open_store(settings: Settings, stack: contextlib.AsyncExitStack) -> tuple[Journal, Reader]:
    journal = Journal.open(settings.store, durability=choice_of(Durability, settings.durability, "durability"))
    stack.callback(journal.close)
    reader = Reader.open(settings.store)
    stack.callback(reader.close)
    return journal, reader


def _siblings(settings: Settings, stack: contextlib.AsyncExitStack) -> Siblings:
    siblings = Siblings(settings.siblings)
    stack.callback(siblings.close)
    return siblings


def _running(model: str, engine: Capabilities, notices: tuple[str, ...], chosen: Accelerated) -> Running:
    return Running("", model, engine.engine, notices, chosen, engine.version, engine.present, engine.missing)


def _policies(settings: Settings, siblings: Siblings) -> Policies:
    return Policies(
        retention=choice_of(Retention, settings.retention, "retention"),
        suspect_logprobs=choice_of(SuspectLogprobs, settings.suspect_logprobs, "suspect_logprobs"),
        memory_bytes=settings.rollout_memory_bytes,
        held_elsewhere=siblings.holder,
    )


def _certificate(served: Served, faster: Faster) -> Certificate | TooSlow:
    try:
        return certificate_of(served, certificates_folder(), limit_s=AT_START_S, faster=faster)
    except TooSlow as slow:
        return slow


def _ready(
    served: Served, certificate: Certificate | TooSlow, settings: Settings, plugin: Plugin | None
) -> tuple[Served, tuple[str, ...]]:
    """The model as its certificate and the settings have it, and what is to be told of its plug-in."""
    certified = certificate if isinstance(certificate, Certificate) else None
    if certified is not None:
        take_over(served, certified)
    if plugin is None:
        return _with_literals(served, settings), ()
    asking, notice = with_plugin(served, plugin, certified)
    return _with_literals(asking, settings), (notice,)


def _with_literals(served: Served, settings: Settings) -> Served:
    if settings.literal_specials == LiteralSpecials.AS_TEXT:
        # The first use reads the vocabulary again, for a second or two: no request should wait for that.
        served.tokenizer.encode_as_text("")
    return served.with_literals(choice_of(LiteralSpecials, settings.literal_specials, "literal_specials"))


def _notices(settings: Settings, certificate: Certificate | TooSlow, *others: str) -> tuple[str, ...]:
    notices: list[str] = []
    if not settings.admin_key:
        notices.append("No admin key: loopback only, no keys are asked for, rollouts begin with their first use")
    notices += (
        summary(certificate) if isinstance(certificate, Certificate) else [f"Template: not certified. {certificate}"]
    )
    return (*notices, *filter(None, others))


def _without_window(world: World) -> tuple[str, ...]:
    if world.overflow is Overflow.CLAMP and world.engine.capabilities.context_length is None:
        return ("--overflow clamp does nothing: the engine does not say how long its window is",)
    return ()


async def _connect(settings: Settings, show: ShowProgress) -> Fleet:
    embedded = EmbeddedSettings(cache_home(), settings.context_length, settings.slots)
    kind, api_key = EngineKind(settings.engine_kind), settings.engine_api_key
    return await Fleet.connect(
        (settings.engine, *settings.more_engines),
        lambda target: connect(target, kind, api_key, embedded=embedded, show=show),
    )


class _LocalFiles(msgspec.Struct, frozen=True):
    """What the options name on this machine."""

    template: str | None
    """The text of --template."""
    files: ModelFiles | None
    """What --tokenizer holds; None = the embedded model brings its own."""
    quirks: tuple[Quirk, ...]
    """Which habits of harnesses are acted on."""
    plugin: Plugin | None
    """Whose bridges are asked to confirm ours."""


def _local_files(settings: Settings) -> _LocalFiles:
    """Read what can be read, and refuse what can be refused, before an engine is asked.

    Raises: CallerError on an address, option or file that cannot be used, ModelFilesError, TooSlow.
    """
    engine_names((settings.engine, *settings.more_engines))
    template = _text(settings.template) if settings.template else None
    quirks = _quirks(settings)
    plugin = plugin_named(settings.plugin_bridges)
    if settings.tokenizer is not None:
        files = read_model_folder(settings.tokenizer, template)
        format_of(settings.answer_format, files)
        refuse_slow_template(files)
        return _LocalFiles(template, files, quirks, plugin)
    if settings.engine != EMBEDDED:
        raise CallerError(
            "The engine at a URL needs a tokenizer",
            "Give the folder with the model's tokenizer.json: --tokenizer DIR",
            code="tokenizer_needed",
        )
    return _LocalFiles(template, None, quirks, plugin)


def _quirks(settings: Settings) -> tuple[Quirk, ...]:
    """The table to act on, as --quirks and --no-quirk say. Raises: CallerError."""
    own: tuple[Quirk, ...] = ()
    if settings.quirks is not None:
        form = FileForm.JSON if settings.quirks.suffix == ".json" else FileForm.TOML
        own = read_quirks(_text(settings.quirks), form)
    return chosen_quirks(own, settings.no_quirks)


def _embedded_files(local: _LocalFiles, engine: EngineServer) -> ModelFiles:
    with Path(engine.model_path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        files = tokenizer_files(memoryview(view))
    files = msgspec.structs.replace(files, chat_template=local.template or engine.capabilities.chat_template)
    refuse_slow_template(files)
    return files


def read_model_folder(folder: Path, template: str | None = None) -> ModelFiles:
    """The texts of a Hugging Face model folder; `template` stands in for its own.

    Raises: CallerError if there is no tokenizer.json or a file is no text, ModelFilesError if one cannot be used.
    """
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        raise CallerError(
            f"There is no tokenizer.json in `{folder}`",
            "Give a model folder as its publisher has it, on this machine: nothing is downloaded by a model's name",
            code="tokenizer_missing",
        )

    def text(name: str) -> str | None:
        file = folder / name
        return _text(file) if file.is_file() else None

    return ModelFiles.from_texts(
        _text(tokenizer),
        text("tokenizer_config.json"),
        template or text("chat_template.jinja"),
        text("generation_config.json"),
        text("special_tokens_map.json"),
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(
            f"Cannot read `{file}`: {error}", "Give a UTF-8 text file that this user can read", code="file_unreadable"
        ) from error


def _now() -> datetime:
    return datetime.now(UTC)


def _mint_call_id() -> str:
    return "".join(secrets.choice(_CALL_ID_LETTERS) for _ in range(_CALL_ID_LENGTH))
