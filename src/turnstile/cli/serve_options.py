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

# Panels of `--help`, in the order of their first option in serve(); what most people need stays in the first, unnamed.
MODEL = "Model and engine"
PROMPTS = "Prompts and training"
WEIGHTS = "Weight updates and engines that fail"
STORE = "The store, and how long things are kept"
ACCESS = "Who may call"
REQUEST = "Limits of one request"
CALLS = "How many calls, and how long they wait"
TELLING = "Log and traces"

EngineOption: TypeAlias = Annotated[
    list[str],
    typer.Option(
        metavar="URL",
        help="Address of the inference engine, or `embedded` for the small model; several times for several engines "
        "of the same model.",
    ),
]
StoreOption: TypeAlias = Annotated[
    Path, typer.Option(metavar="DIR", help="Directory that everything is recorded in; made if it is not there.")
]
ModelOption: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="Name that agents ask for; default: the engine's own.")
]
TokenizerOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder with the model's tokenizer.json and chat template; needed for an engine at an address.",
    ),
]
TemplateOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Chat template file to use instead of the model's own.", exists=True, rich_help_panel=MODEL
    ),
]
AnswerFormatOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How the model writes tool calls: hermes, qwen3_coder, llama3_json, none, or engine (its own parser is "
        "asked); default: the template says it.",
        rich_help_panel=MODEL,
    ),
]
EngineKindOption: TypeAlias = Annotated[
    EngineKind,
    typer.Option(
        metavar="KIND",
        help="What the engine is: vllm, sglang, llamacpp, token_server (one of your own), or auto: it is asked.",
        rich_help_panel=MODEL,
    ),
]
RetentionOption: TypeAlias = Annotated[
    Retention,
    typer.Option(
        metavar="POLICY",
        help="Thinking of earlier turns, where the template would drop it: retain keeps it, tool_cycle until the next "
        "user message, template drops it.",
        rich_help_panel=PROMPTS,
    ),
]
LiteralSpecialsOption: TypeAlias = Annotated[
    LiteralSpecials,
    typer.Option(
        metavar="SETTING",
        help="Agent's text that spells a control token: as_engine encodes it as an engine would, as_text never as "
        "that token.",
        rich_help_panel=PROMPTS,
    ),
]
OverflowOption: TypeAlias = Annotated[
    Overflow,
    typer.Option(
        metavar="SETTING",
        help="A max_tokens for which the window has no room: as_engine sends it as it is, clamp sends what there is "
        "room for.",
        rich_help_panel=PROMPTS,
    ),
]
SuspectLogprobsOption: TypeAlias = Annotated[
    SuspectLogprobs,
    typer.Option(
        metavar="SETTING",
        help="A call whose log-probabilities are not plausible: mark notes it, mask keeps it out of training too.",
        rich_help_panel=PROMPTS,
    ),
]
HoldExpiryOption: TypeAlias = Annotated[
    HoldExpiry,
    typer.Option(
        metavar="SETTING",
        help="Calls held for new weights when the deadline passes: refuse answers 503, continue lets them go on.",
        rich_help_panel=WEIGHTS,
    ),
]
ContinueAbortedOption: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        max=100,
        help="How often an answer that the engine gave up is taken up again; 0: the call fails.",
        rich_help_panel=WEIGHTS,
    ),
]
PluginBridgesOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Package whose hand-written renderers must agree with a spliced prompt: renderers; default: none.",
        rich_help_panel=MODEL,
    ),
]
DurabilityOption: TypeAlias = Annotated[
    Durability,
    typer.Option(
        metavar="LEVEL",
        help="What a recorded answer survives: the end of the process, or a loss of power.",
        rich_help_panel=STORE,
    ),
]
RolloutMemoryMbOption: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="MIB",
        min=1,
        help="Memory for open rollouts; beyond it the longest unused are read from the store again when called.",
        rich_help_panel=STORE,
    ),
]
IdleTimeoutOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Close open rollouts without a call for so long, such as 30m; 0: never.",
        rich_help_panel=STORE,
    ),
]
KeepForOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Delete rollouts that were exported, and closed longer ago, such as 7d; 0: never.",
        rich_help_panel=STORE,
    ),
]
KeepGbOption: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="GB",
        min=0.0,
        help="Delete exported rollouts, the first closed first, until the store takes less; 0: never.",
        rich_help_panel=STORE,
    ),
]
SiblingOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="DIR",
        help="Store of another process behind the same load balancer; any number of times.",
        rich_help_panel=STORE,
    ),
]
HostOption: TypeAlias = Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")]
PortOption: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="Port to listen on; 0 = any free one.", min=0, max=65535)
]
AdminKeyOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="KEY",
        envvar="TURNSTILE_ADMIN_KEY",
        show_envvar=True,
        help="Key of operators; with it agents need keys too. Needed beyond loopback. Better given by the variable.",
        rich_help_panel=ACCESS,
    ),
]
ReadKeyOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="KEY",
        envvar="TURNSTILE_READ_KEY",
        show_envvar=True,
        help="Key that reads what operators read and changes nothing. Better given by the variable.",
        rich_help_panel=ACCESS,
    ),
]
AllowHostOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST",
        help="Name beside localhost that clients may use where no keys are asked for; any number of times.",
        rich_help_panel=ACCESS,
    ),
]
MaxBodyMbOption: TypeAlias = Annotated[
    int, typer.Option(metavar="MIB", min=1, help="Longest body.", rich_help_panel=REQUEST)
]
MediaAllowOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST",
        help="Host, or HOST:PORT, from which images are fetched that agents name by URL; any number of times; "
        "default: none is fetched.",
        rich_help_panel=ACCESS,
    ),
]
MaxImagesOption: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=0, help="Images in the conversation.", rich_help_panel=REQUEST)
]
MaxImageMegapixelsOption: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="N", min=0.0, help="Millions of pixels of one image, as its header says.", rich_help_panel=REQUEST
    ),
]
MaxMessagesOption: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=1, help="Messages.", rich_help_panel=REQUEST)
]
MaxPartsOption: TypeAlias = Annotated[
    int,
    typer.Option(metavar="N", min=1, help="Parts of content, and calls, of all messages.", rich_help_panel=REQUEST),
]
MaxToolsOption: TypeAlias = Annotated[int, typer.Option(metavar="N", min=0, help="Tools.", rich_help_panel=REQUEST)]
MaxToolsKbOption: TypeAlias = Annotated[
    int, typer.Option(metavar="KIB", min=0, help="Length of all tools together.", rich_help_panel=REQUEST)
]
MaxJsonNestingOption: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, max=200, help="Levels of JSON in a tool or in template arguments.", rich_help_panel=REQUEST
    ),
]
MaxCallsOption: TypeAlias = Annotated[
    int, typer.Option(metavar="N", help="Calls that run at once; further ones wait.", min=1, rich_help_panel=CALLS)
]
MaxCallsPerRolloutOption: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=1, help="The same for one rollout.", rich_help_panel=CALLS)
]
MaxWaitingOption: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N", min=0, help="Calls that wait; further ones are refused with 503 at once.", rich_help_panel=CALLS
    ),
]
QueueSOption: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="S", min=0.0, help="Seconds that a call waits before it is refused with 503.", rich_help_panel=CALLS
    ),
]
DiskReserveMbOption: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="MIB",
        min=0,
        help="No rollout begins with less free on the store's disk; 0: never refused.",
        rich_help_panel=STORE,
    ),
]
DiskFloorMbOption: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="MIB",
        min=0,
        help="No call begins with less free on the store's disk; 0: never refused.",
        rich_help_panel=STORE,
    ),
]
KeepAliveSOption: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="S",
        min=0.1,
        help="Seconds of silence after which a streaming client is sent a comment line.",
        rich_help_panel=CALLS,
    ),
]
GraceSOption: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="S",
        min=0.0,
        help="Seconds that a call goes on when its client has left, so that a retry can join it.",
        rich_help_panel=CALLS,
    ),
]
FinishPatienceSOption: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="S", help="Seconds that closing a rollout waits for its running calls.", min=0.0, rich_help_panel=CALLS
    ),
]
ContextLengthOption: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N", help="Tokens of one sequence, for the embedded model.", min=64, max=8192, rich_help_panel=MODEL
    ),
]
SlotsOption: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N", help="Answers that the embedded model samples at once.", min=1, max=64, rich_help_panel=MODEL
    ),
]
LogOption: TypeAlias = Annotated[
    LogForm,
    typer.Option(
        metavar="FORM",
        help="Calls and events on standard error: text, json, off, or auto: text in a terminal, else json.",
        rich_help_panel=TELLING,
    ),
]
OtelOption: TypeAlias = Annotated[
    Otel,
    typer.Option(
        metavar="WHEN",
        help="OpenTelemetry traces: on, off, or auto: if OTEL_EXPORTER_OTLP_ENDPOINT says where they go.",
        rich_help_panel=TELLING,
    ),
]
QuirksOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        exists=True,
        help="Your own entries for the table of harnesses' quirks (how agent programs are recognised).",
        rich_help_panel=PROMPTS,
    ),
]
NoQuirkOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A quirk that is not acted on; any number of times.", rich_help_panel=PROMPTS),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON line when ready.")]
