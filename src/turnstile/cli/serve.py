"""`turnstile serve`."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import TypeAlias

import msgspec
import typer
import uvloop
from rich.console import Console

import turnstile.cli.serve_options as options
from turnstile.cli.duration import duration_s
from turnstile.cli.engine_table import engine_table
from turnstile.cli.progress import download_bar
from turnstile.config import Settings
from turnstile.engines import EngineKind
from turnstile.exchange.draws import Overflow
from turnstile.exchange.holding import HoldExpiry
from turnstile.generation import LiteralSpecials, Retention
from turnstile.journal import SuspectLogprobs
from turnstile.server.assembly import Running
from turnstile.server.engine_keys import ENGINE_API_KEY, ENGINE_API_KEYS
from turnstile.server.logs import LogForm
from turnstile.server.otel import Otel
from turnstile.server.start import listening
from turnstile.store import Durability

Tell: TypeAlias = Callable[[Running], None]


def serve(
    engine: options.EngineOption,
    store: options.StoreOption,
    model: options.ModelOption = "",
    tokenizer: options.TokenizerOption = None,
    template: options.TemplateOption = None,
    answer_format: options.AnswerFormatOption = "",
    engine_kind: options.EngineKindOption = EngineKind.AUTO,
    retention: options.RetentionOption = Retention.RETAIN,
    literal_specials: options.LiteralSpecialsOption = LiteralSpecials.AS_ENGINE,
    overflow: options.OverflowOption = Overflow.AS_ENGINE,
    suspect_logprobs: options.SuspectLogprobsOption = SuspectLogprobs.MARK,
    hold_expiry: options.HoldExpiryOption = HoldExpiry.REFUSE,
    continue_aborted: options.ContinueAbortedOption = 0,
    plugin_bridges: options.PluginBridgesOption = "",
    durability: options.DurabilityOption = Durability.PROCESS,
    rollout_memory_mb: options.RolloutMemoryMbOption = 1024,
    idle_timeout: options.IdleTimeoutOption = "0",
    keep_for: options.KeepForOption = "0",
    keep_gb: options.KeepGbOption = 0.0,
    sibling: options.SiblingOption = None,
    host: options.HostOption = "127.0.0.1",
    port: options.PortOption = 7000,
    admin_key: options.AdminKeyOption = "",
    read_key: options.ReadKeyOption = "",
    allow_host: options.AllowHostOption = None,
    max_body_mb: options.MaxBodyMbOption = 32,
    media_allow: options.MediaAllowOption = None,
    max_images: options.MaxImagesOption = 500,
    max_image_megapixels: options.MaxImageMegapixelsOption = 64.0,
    max_messages: options.MaxMessagesOption = 10_000,
    max_parts: options.MaxPartsOption = 20_000,
    max_tools: options.MaxToolsOption = 1024,
    max_tools_kb: options.MaxToolsKbOption = 4096,
    max_json_nesting: options.MaxJsonNestingOption = 200,
    max_calls: options.MaxCallsOption = 4096,
    max_calls_per_rollout: options.MaxCallsPerRolloutOption = 256,
    max_waiting: options.MaxWaitingOption = 4096,
    queue_s: options.QueueSOption = 30.0,
    disk_reserve_mb: options.DiskReserveMbOption = 512,
    disk_floor_mb: options.DiskFloorMbOption = 64,
    keep_alive_s: options.KeepAliveSOption = 15.0,
    grace_s: options.GraceSOption = 2.0,
    finish_patience_s: options.FinishPatienceSOption = 30.0,
    context_length: options.ContextLengthOption = 8192,
    slots: options.SlotsOption = 2,
    log: options.LogOption = LogForm.AUTO,
    otel: options.OtelOption = Otel.AUTO,
    quirks: options.QuirksOption = None,
    no_quirk: options.NoQuirkOption = None,
    json: options.JsonOption = False,
) -> None:
    """Run the proxy.

    Point an agent at `http://HOST:PORT/r/ROLLOUT_ID/v1` (OpenAI's clients) or `http://HOST:PORT/r/ROLLOUT_ID`
    (Anthropic's and Google's) and it talks to the engine; every token that the model sees or samples is recorded in
    STORE. ROLLOUT_ID is any name; without an admin key a rollout begins with its first use.

        turnstile serve --engine embedded --store runs

        turnstile serve --engine http://127.0.0.1:8080 --tokenizer ./Qwen3-4B --store runs
    """
    settings = Settings(
        engine=engine[0],
        more_engines=tuple(engine[1:]),
        engine_kind=engine_kind.value,
        model=model,
        tokenizer=tokenizer,
        template=template,
        answer_format=answer_format,
        retention=retention.value,
        literal_specials=literal_specials.value,
        overflow=overflow.value,
        suspect_logprobs=suspect_logprobs.value,
        hold_expiry=hold_expiry.value,
        continue_aborted=continue_aborted,
        plugin_bridges=plugin_bridges,
        store=store,
        durability=durability.value,
        rollout_memory_bytes=rollout_memory_mb * 1024 * 1024,
        idle_timeout_s=duration_s(idle_timeout, "--idle-timeout"),
        keep_for_s=duration_s(keep_for, "--keep-for"),
        keep_gb=keep_gb,
        siblings=tuple(sibling or ()),
        host=host,
        port=port,
        admin_key=admin_key,
        read_key=read_key,
        allow_hosts=tuple(allow_host or ()),
        engine_api_key=os.environ.get(ENGINE_API_KEY, ""),
        engine_api_keys=os.environ.get(ENGINE_API_KEYS, ""),
        max_body_bytes=max_body_mb * 1024 * 1024,
        media_allow=tuple(media_allow or ()),
        max_images=max_images,
        max_image_megapixels=max_image_megapixels,
        max_messages=max_messages,
        max_parts=max_parts,
        max_tools=max_tools,
        max_tools_bytes=max_tools_kb * 1024,
        max_json_nesting=max_json_nesting,
        max_calls=max_calls,
        max_calls_per_rollout=max_calls_per_rollout,
        max_waiting=max_waiting,
        queue_s=queue_s,
        disk_reserve_bytes=disk_reserve_mb * 1024 * 1024,
        disk_floor_bytes=disk_floor_mb * 1024 * 1024,
        keep_alive_s=keep_alive_s,
        grace_s=grace_s,
        finish_patience_s=finish_patience_s,
        context_length=context_length,
        slots=slots,
        log=log.value,
        otel=otel.value,
        quirks=quirks,
        no_quirks=tuple(no_quirk or ()),
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    signal.signal(signal.SIGTERM, _end)
    uvloop.run(_serve(settings, _tell_json if json else _tell_person))


def _end(number: int, _: FrameType | None) -> None:
    """End as by Ctrl-C: what is open is closed, and the log and traces are written to their end."""
    raise SystemExit(128 + number)


async def _serve(settings: Settings, tell: Tell) -> None:
    with download_bar() as show:
        async with listening(settings, show) as (running, server, bound):
            _collect_garbage_rarely()
            tell(running)
            await server.serve(sockets=[bound])


def _collect_garbage_rarely() -> None:
    """Keep Python's collector from walking what lives as long as the process or a rollout.

    A call makes thousands of objects and no cycles to speak of, but each new object counts towards the next walk
    over all that is held: a fifth of the CPU at 256 rollouts (benchmarks/overhead.py).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _tell_json(running: Running) -> None:
    typer.echo(msgspec.json.encode(running).decode())


def _tell_person(running: Running) -> None:
    typer.echo(f"Turnstile answers at {running.url} with model `{running.model}` on {running.engine}", err=True)
    typer.echo(f"  agents:  {running.url}/r/ROLLOUT_ID/v1  (OPENAI_BASE_URL)", err=True)
    typer.echo(f"           {running.url}/r/ROLLOUT_ID  (ANTHROPIC_BASE_URL, GOOGLE_GEMINI_BASE_URL)", err=True)
    typer.echo(f"  runners: {running.url}/rollouts", err=True)
    engine_table(running.engine_can, running.engine_lacks, Console(stderr=True))
    for notice in running.notices:
        typer.echo(f"  note: {notice}", err=True)
    chosen = running.accelerated
    typer.echo(f"  renders with {chosen.renders}, encodes with {chosen.encodes}", err=True)
