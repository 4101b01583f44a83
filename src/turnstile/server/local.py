"""`turnstile.serve`: the same server in a thread of the caller's process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Literal

import uvicorn

from turnstile.client import Client
from turnstile.config import Settings
from turnstile.engines.smollm import say_nothing
from turnstile.server.assembly import ShowProgress
from turnstile.server.engine_keys import ENGINE_API_KEY, ENGINE_API_KEYS
from turnstile.server.keys import keys_in
from turnstile.server.start import listening


@contextlib.contextmanager
def serve(  # noqa: PLR0913 - what `turnstile serve` is told most often, all by name
    *,
    engine: str | Sequence[str],
    store: str | Path,
    model: str = "",
    tokenizer: str | Path | None = None,
    template: str | Path | None = None,
    retention: Literal["retain", "tool_cycle", "template"] = "retain",
    literal_specials: Literal["as_engine", "as_text"] = "as_engine",
    overflow: Literal["as_engine", "clamp"] = "as_engine",
    suspect_logprobs: Literal["mark", "mask"] = "mark",
    hold_expiry: Literal["refuse", "continue"] = "refuse",
    continue_aborted: int = 0,
    plugin_bridges: str = "",
    durability: Literal["process", "power"] = "process",
    quirks: str | Path | None = None,
    no_quirks: Sequence[str] = (),
    idle_timeout_s: float = 0.0,
    keep_for_s: float = 0.0,
    keep_gb: float = 0.0,
    admin_key: str = "",
    max_body_mb: int = 32,
    max_images: int = 500,
    max_messages: int = 10_000,
    max_parts: int = 20_000,
    max_tools: int = 1024,
    max_tools_kb: int = 4096,
    max_json_nesting: int = 200,
    max_calls: int = 4096,
    max_calls_per_rollout: int = 256,
    max_waiting: int = 4096,
    queue_s: float = 30.0,
    disk_reserve_mb: int = 512,
    disk_floor_mb: int = 64,
) -> Generator[Client]:
    """Run a server until the block is left; gives a client of it, whose `url` agents are pointed at.

    Args:
        engine: URL of the engine, or `embedded`; several URLs for several engines of the same model.
        store: directory of the journal; made if it is not there.
        model: name that agents ask for; empty = the engine's own.
        tokenizer: folder with tokenizer.json; None = the embedded model's own.
        template: chat template file to use instead of the model's own.
        retention: what stays of earlier turns where the template would write them in another way.
        literal_specials: what becomes of an agent's text that spells a control token.
        overflow: what becomes of `max_tokens` that do not fit behind the prompt into the engine's window.
        suspect_logprobs: what becomes of a call whose log-probabilities are not plausible.
        hold_expiry: what becomes of calls held for new weights when the deadline passes.
        continue_aborted: how often an answer is taken up again that the engine gives up; 0 = it fails.
        plugin_bridges: package whose hand-written bridges are asked to confirm ours; empty = none.
        durability: what a recorded answer survives: the end of the process, or a loss of power.
        quirks: file of own entries for the table of quirks; None = none.
        no_quirks: names of quirks that are not acted on.
        idle_timeout_s: seconds without a call after which an open rollout is closed; 0: never.
        keep_for_s: seconds that closed rollouts are kept which were exported; 0: for ever.
        keep_gb: billions of bytes that the store may take before the oldest of these go; 0: any.
        admin_key: asks for keys as `turnstile serve --admin-key` does.
        max_body_mb: longest request body, in MiB.
        max_images: images that one conversation may show.
        max_messages: messages of one request.
        max_parts: parts of content, and calls, of all messages of one request together.
        max_tools: tools of one request.
        max_tools_kb: KiB of all tools of one request together.
        max_json_nesting: levels of JSON in a tool or a template's arguments; at most 200.
        max_calls: calls that run at once; further ones wait.
        max_calls_per_rollout: of these, of one rollout.
        max_waiting: calls that wait for others to end; further ones are refused.
        queue_s: seconds that a call waits before it is refused.
        disk_reserve_mb: MiB free on the store's disk, below which no rollout begins; 0: never.
        disk_floor_mb: the same for calls.

    An engine's key comes from TURNSTILE_ENGINE_API_KEY or TURNSTILE_ENGINE_API_KEYS.

    Raises: what `turnstile serve` says on bad settings: CallerError, StoreError or EngineError.
    """
    first, *more = [engine] if isinstance(engine, str) else engine
    settings = Settings(
        engine=first,
        more_engines=tuple(more),
        store=Path(store),
        model=model,
        tokenizer=Path(tokenizer) if tokenizer else None,
        template=Path(template) if template else None,
        retention=retention,
        literal_specials=literal_specials,
        overflow=overflow,
        suspect_logprobs=suspect_logprobs,
        hold_expiry=hold_expiry,
        continue_aborted=continue_aborted,
        plugin_bridges=plugin_bridges,
        durability=durability,
        quirks=Path(quirks) if quirks else None,
        no_quirks=tuple(no_quirks),
        idle_timeout_s=idle_timeout_s,
        keep_for_s=keep_for_s,
        keep_gb=keep_gb,
        admin_key=admin_key,
        engine_api_key=os.environ.get(ENGINE_API_KEY, ""),
        engine_api_keys=os.environ.get(ENGINE_API_KEYS, ""),
        max_body_bytes=max_body_mb * 1024 * 1024,
        max_images=max_images,
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
        port=0,
    )
    with serving(settings, say_nothing) as client:
        yield client


@contextlib.contextmanager
def serving(settings: Settings, show: ShowProgress) -> Generator[Client]:
    """Run a server with these settings in a thread until the block is left."""
    news: SimpleQueue[tuple[str, uvicorn.Server] | BaseException] = SimpleQueue()
    thread = threading.Thread(
        target=lambda: asyncio.run(_run(settings, show, news)), name="turnstile-server", daemon=True
    )
    thread.start()
    match news.get():
        case (url, server):
            try:
                with Client(url, admin_key=next(iter(keys_in(settings.admin_key)), "")) as client:
                    yield client
            finally:
                server.should_exit = True
                thread.join()
        case BaseException() as failed:
            thread.join()
            raise failed


async def _run(
    settings: Settings, show: ShowProgress, news: SimpleQueue[tuple[str, uvicorn.Server] | BaseException]
) -> None:
    try:
        async with listening(settings, show) as (running, server, bound):
            news.put((running.url, server))
            await server.serve(sockets=[bound])
    except BaseException as failed:
        news.put(failed)
        if not isinstance(failed, Exception):
            raise
