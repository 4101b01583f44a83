"""`turnstile serve`."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer
import uvloop

from turnstile.cli.progress import download_bar
from turnstile.config import Settings
from turnstile.engines import EngineKind
from turnstile.exchange.draws import Overflow
from turnstile.generation import LiteralSpecials, Retention
from turnstile.journal import SuspectLogprobs
from turnstile.server.start import Running, listening

Tell: TypeAlias = Callable[[Running], None]


def serve(
    engine: Annotated[str, typer.Option(help="URL of the inference engine, or `embedded` for the small model.")],
    store: Annotated[Path, typer.Option(help="Directory of the journal; made if it is not there.")],
    model: Annotated[str, typer.Option(help="Name that agents ask for; default: the engine's own.")] = "",
    tokenizer: Annotated[
        Path | None, typer.Option(help="Folder with the model's tokenizer.json and chat template.")
    ] = None,
    template: Annotated[
        Path | None, typer.Option(help="Chat template file to use instead of the model's own.", exists=True)
    ] = None,
    answer_format: Annotated[
        str,
        typer.Option(
            help="How tool calls are written: hermes, qwen3_coder, llama3_json, none; default: the template says it."
        ),
    ] = "",
    engine_kind: Annotated[EngineKind, typer.Option(help="Adapter for the engine.")] = EngineKind.AUTO,
    retention: Annotated[
        Retention, typer.Option(help="What stays of earlier turns where the template would drop their thinking.")
    ] = Retention.RETAIN,
    literal_specials: Annotated[
        LiteralSpecials, typer.Option(help="What becomes of an agent's text that spells a control token.")
    ] = LiteralSpecials.AS_ENGINE,
    overflow: Annotated[
        Overflow, typer.Option(help="What becomes of max_tokens that do not fit behind the prompt into the window.")
    ] = Overflow.AS_ENGINE,
    suspect_logprobs: Annotated[
        SuspectLogprobs, typer.Option(help="What becomes of a call whose log-probabilities are not plausible.")
    ] = SuspectLogprobs.MARK,
    plugin_bridges: Annotated[
        str, typer.Option(help="Package whose hand-written bridges are asked to confirm ours: `renderers`.")
    ] = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 = any free one.", min=0, max=65535)] = 7000,
    admin_key: Annotated[
        str, typer.Option(envvar="TURNSTILE_ADMIN_KEY", help="Ask for keys; needed beyond loopback.", show_envvar=True)
    ] = "",
    engine_api_key: Annotated[
        str, typer.Option(envvar="TURNSTILE_ENGINE_API_KEY", help="Bearer token for the engine.", hidden=True)
    ] = "",
    max_body_mb: Annotated[int, typer.Option(help="Longest request body, in MiB.", min=1)] = 32,
    keep_alive_s: Annotated[
        float, typer.Option(help="Seconds of silence after which a streaming client gets a sign of life.", min=0.1)
    ] = 15.0,
    grace_s: Annotated[
        float, typer.Option(help="Seconds that a call goes on which nobody waits for any more.", min=0.0)
    ] = 2.0,
    finish_patience_s: Annotated[
        float, typer.Option(help="Seconds that closing a rollout waits for its running calls.", min=0.0)
    ] = 30.0,
    context_length: Annotated[
        int, typer.Option(help="Tokens of one sequence, for the embedded model.", min=64, max=8192)
    ] = 8192,
    slots: Annotated[int, typer.Option(help="Answers that the embedded model samples at once.", min=1, max=64)] = 2,
    quirks: Annotated[
        Path | None, typer.Option(help="File of own entries for the table of harnesses' habits.", exists=True)
    ] = None,
    no_quirk: Annotated[
        list[str] | None, typer.Option(help="Name of a harness's habit that is not acted on; any number of times.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON line when ready.")] = False,
) -> None:
    """Run the proxy.

    Point an agent at `http://HOST:PORT/r/ROLLOUT_ID/v1` (OpenAI's clients) or `http://HOST:PORT/r/ROLLOUT_ID`
    (Anthropic's and Google's) and it talks to the engine; every token that the model sees or samples is recorded in
    STORE. ROLLOUT_ID is any name; without an admin key a rollout begins with its first use.

        turnstile serve --engine embedded --store runs

        turnstile serve --engine http://127.0.0.1:8080 --tokenizer ./Qwen3-4B --store runs
    """
    settings = Settings(
        engine=engine,
        engine_kind=engine_kind.value,
        model=model,
        tokenizer=tokenizer,
        template=template,
        answer_format=answer_format,
        retention=retention.value,
        literal_specials=literal_specials.value,
        overflow=overflow.value,
        suspect_logprobs=suspect_logprobs.value,
        plugin_bridges=plugin_bridges,
        store=store,
        host=host,
        port=port,
        admin_key=admin_key,
        engine_api_key=engine_api_key,
        max_body_bytes=max_body_mb * 1024 * 1024,
        keep_alive_s=keep_alive_s,
        grace_s=grace_s,
        finish_patience_s=finish_patience_s,
        context_length=context_length,
        slots=slots,
        quirks=quirks,
        no_quirks=tuple(no_quirk or ()),
    )
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    uvloop.run(_serve(settings, _tell_json if json else _tell_person))


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
    for notice in running.notices:
        typer.echo(f"  note: {notice}", err=True)
    chosen = running.accelerated
    typer.echo(f"  renders with {chosen.renders}, encodes with {chosen.encodes}", err=True)
