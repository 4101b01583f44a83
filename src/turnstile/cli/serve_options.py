"""The options of `turnstile serve`: their types, and what `--help` says of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from turnstile.engines import EngineKind
from turnstile.exchange.draws import Overflow
from turnstile.exchange.holding import HoldExpiry
from turnstile.generation import LiteralSpecials, Retention
from turnstile.journal import SuspectLogprobs
from turnstile.server.logs import LogForm
from turnstile.server.otel import Otel
from turnstile.store import Durability

EngineOption: TypeAlias = Annotated[
    list[str],
    typer.Option(
        help="URL of the inference engine, or `embedded` for the small model; several times for several engines of "
        "the same model."
    ),
]
StoreOption: TypeAlias = Annotated[Path, typer.Option(help="Directory of the journal; made if it is not there.")]
ModelOption: TypeAlias = Annotated[str, typer.Option(help="Name that agents ask for; default: the engine's own.")]
TokenizerOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Folder with the model's tokenizer.json and chat template; needed for an engine at a URL."),
]
TemplateOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Chat template file to use instead of the model's own.", exists=True)
]
AnswerFormatOption: TypeAlias = Annotated[
    str,
    typer.Option(
        help="How tool calls are written: hermes, qwen3_coder, llama3_json, none, or engine (its own parser is asked); "
        "default: the template says it."
    ),
]
EngineKindOption: TypeAlias = Annotated[EngineKind, typer.Option(help="Adapter for the engine.")]
RetentionOption: TypeAlias = Annotated[
    Retention, typer.Option(help="What stays of earlier turns where the template would drop their thinking.")
]
LiteralSpecialsOption: TypeAlias = Annotated[
    LiteralSpecials, typer.Option(help="What becomes of an agent's text that spells a control token.")
]
OverflowOption: TypeAlias = Annotated[
    Overflow, typer.Option(help="What becomes of max_tokens that do not fit behind the prompt into the window.")
]
SuspectLogprobsOption: TypeAlias = Annotated[
    SuspectLogprobs, typer.Option(help="What becomes of a call whose log-probabilities are not plausible.")
]
HoldExpiryOption: TypeAlias = Annotated[
    HoldExpiry, typer.Option(help="What becomes of calls held for new weights when the deadline passes.")
]
ContinueAbortedOption: TypeAlias = Annotated[
    int,
    typer.Option(help="How often an answer is taken up again that the engine gives up; 0: it fails.", min=0, max=100),
]
PluginBridgesOption: TypeAlias = Annotated[
    str, typer.Option(help="Package whose hand-written bridges are asked to confirm ours: `renderers`.")
]
DurabilityOption: TypeAlias = Annotated[
    Durability, typer.Option(help="What a recorded answer survives: the end of the process, or of its machine.")
]
RolloutMemoryMbOption: TypeAlias = Annotated[
    int, typer.Option(help="MiB of open rollouts in memory; beyond it those that nobody uses leave it.", min=1)
]
IdleTimeoutOption: TypeAlias = Annotated[
    str, typer.Option(metavar="TIME", help="Close open rollouts without a call for so long, such as 30m; 0: never.")
]
KeepForOption: TypeAlias = Annotated[
    str, typer.Option(metavar="TIME", help="Delete exported rollouts closed longer ago, such as 7d; 0: never.")
]
KeepGbOption: TypeAlias = Annotated[
    float, typer.Option(help="GB that the store may take before the oldest exported rollouts go; 0: any.", min=0.0)
]
SiblingOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(help="Store of another process behind the same load balancer; any number of times."),
]
HostOption: TypeAlias = Annotated[str, typer.Option(help="Address to listen on.")]
PortOption: TypeAlias = Annotated[int, typer.Option(help="Port to listen on; 0 = any free one.", min=0, max=65535)]
AdminKeyOption: TypeAlias = Annotated[
    str, typer.Option(envvar="TURNSTILE_ADMIN_KEY", help="Ask for keys; needed beyond loopback.", show_envvar=True)
]
ReadKeyOption: TypeAlias = Annotated[
    str,
    typer.Option(envvar="TURNSTILE_READ_KEY", help="Key that opens what changes nothing.", show_envvar=True),
]
AllowHostOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST",
        help="Name beside localhost that clients may use where no keys are asked for; any number of times.",
    ),
]
MaxBodyMbOption: TypeAlias = Annotated[int, typer.Option(help="Longest request body, in MiB.", min=1)]
MediaAllowOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST",
        help="Host, or HOST:PORT, that images are fetched from which agents name by URL; any number of times.",
    ),
]
MaxImagesOption: TypeAlias = Annotated[int, typer.Option(help="Images that one conversation may show.", min=0)]
MaxImageMegapixelsOption: TypeAlias = Annotated[
    float, typer.Option(help="Pixels of one image, in millions, as its header says.", min=0.0)
]
MaxMessagesOption: TypeAlias = Annotated[int, typer.Option(help="Messages of one request.", min=1)]
MaxPartsOption: TypeAlias = Annotated[
    int, typer.Option(help="Parts of content, and calls, of all messages of one request together.", min=1)
]
MaxToolsOption: TypeAlias = Annotated[int, typer.Option(help="Tools of one request.", min=0)]
MaxToolsKbOption: TypeAlias = Annotated[int, typer.Option(help="KiB of all tools of one request together.", min=0)]
MaxJsonNestingOption: TypeAlias = Annotated[
    int, typer.Option(help="Levels of JSON in a tool or a template's arguments.", min=1, max=200)
]
MaxCallsOption: TypeAlias = Annotated[int, typer.Option(help="Calls that run at once; further ones wait.", min=1)]
MaxCallsPerRolloutOption: TypeAlias = Annotated[
    int, typer.Option(help="Calls of one rollout that run at once; its further ones wait.", min=1)
]
MaxWaitingOption: TypeAlias = Annotated[
    int, typer.Option(help="Calls that wait for others to end; further ones are refused with 503.", min=0)
]
QueueSOption: TypeAlias = Annotated[
    float, typer.Option(help="Seconds that a call waits for others to end before it is refused with 503.", min=0.0)
]
DiskReserveMbOption: TypeAlias = Annotated[
    int, typer.Option(help="MiB free on the store's disk, below which no rollout begins; 0: never.", min=0)
]
DiskFloorMbOption: TypeAlias = Annotated[
    int, typer.Option(help="MiB free on the store's disk, below which no call begins; 0: never.", min=0)
]
KeepAliveSOption: TypeAlias = Annotated[
    float, typer.Option(help="Seconds of silence after which a streaming client gets a sign of life.", min=0.1)
]
GraceSOption: TypeAlias = Annotated[
    float, typer.Option(help="Seconds that a call goes on which nobody waits for any more.", min=0.0)
]
FinishPatienceSOption: TypeAlias = Annotated[
    float, typer.Option(help="Seconds that closing a rollout waits for its running calls.", min=0.0)
]
ContextLengthOption: TypeAlias = Annotated[
    int, typer.Option(help="Tokens of one sequence, for the embedded model.", min=64, max=8192)
]
SlotsOption: TypeAlias = Annotated[
    int, typer.Option(help="Answers that the embedded model samples at once.", min=1, max=64)
]
LogOption: TypeAlias = Annotated[
    LogForm, typer.Option(help="How calls and events are told on standard error; auto: text for people, else JSON.")
]
OtelOption: TypeAlias = Annotated[
    Otel, typer.Option(help="OpenTelemetry traces; auto: if OTEL_EXPORTER_OTLP_ENDPOINT says where they go.")
]
QuirksOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="File of own entries for the table of harnesses' habits.", exists=True)
]
NoQuirkOption: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="Name of a harness's habit that is not acted on; any number of times.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON line when ready.")]
