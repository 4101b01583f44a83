"""Settings of a server, read by cli and server and handed on as plain arguments."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from turnstile.errors import CallerError

Choice = TypeVar("Choice", bound=enum.StrEnum)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `turnstile serve` can be told."""

    engine: str
    """URL of the engine, or `embedded`."""
    more_engines: tuple[str, ...] = ()
    """URLs of further engines that serve the same model."""
    engine_kind: str = "auto"
    """Which adapter talks to the engine: a value of `turnstile.engines.EngineKind`."""
    model: str = ""
    """Name that clients ask for; empty = the engine's own first name."""
    tokenizer: Path | None = None
    """Folder with tokenizer.json; None = the embedded model's own."""
    template: Path | None = None
    """Chat template file to use instead of the tokenizer folder's."""
    answer_format: str = ""
    """Name of the reasoning and tool-call format; empty = read from the template."""
    retention: str = "retain"
    """What stays of earlier turns where the template would write them in another way: a value of
    `turnstile.generation.Retention`."""
    literal_specials: str = "as_engine"
    """What becomes of a client's text that spells a control token: a value of
    `turnstile.generation.LiteralSpecials`."""
    overflow: str = "as_engine"
    """What becomes of a request for more tokens than the engine's window has room for behind the prompt: a value of
    `turnstile.exchange.draws.Overflow`."""
    suspect_logprobs: str = "mark"
    """What becomes of a call whose log-probabilities are not plausible: a value of
    `turnstile.journal.SuspectLogprobs`."""
    hold_expiry: str = "refuse"
    """What becomes of held calls when their deadline passes: a value of `turnstile.exchange.holding.HoldExpiry`."""
    continue_aborted: int = 0
    """How many times a call is taken up again that the engine gives up in mid-answer; 0 = it fails."""
    plugin_bridges: str = ""
    """Name of a package whose hand-written bridges are asked whether they give the same ids; empty = none."""
    store: Path
    durability: str = "process"
    """What a recorded answer survives: a value of `turnstile.store.Durability`."""
    rollout_memory_bytes: int = 1 << 30
    """How much open rollouts may take in memory before those that nobody uses leave it."""
    idle_timeout_s: float = 0.0
    """After how long without a call an open rollout is closed; 0 = never."""
    keep_for_s: float = 0.0
    """How long closed rollouts are kept that were exported; 0 = for ever."""
    keep_gb: float = 0.0
    """Billions of bytes that the store may take before the oldest of these go; 0 = any."""
    siblings: tuple[Path, ...] = ()
    """Stores of the other processes behind the same load balancer."""
    host: str = "127.0.0.1"
    port: int = 7000
    """0 = any free one."""
    admin_key: str = ""
    """Empty: no keys are asked for, and only loopback is served. Several with commas between them open alike."""
    read_key: str = ""
    """Opens what operators read and nothing else; several with commas between them."""
    allow_hosts: tuple[str, ...] = ()
    """Names beside loopback's own that a request may be sent to where no keys are asked for."""
    engine_api_key: str = ""
    """Sent as a bearer token to every engine that has none of its own; from the environment only."""
    engine_api_keys: str = ""
    """Those of single engines, `HOST:PORT=KEY` with commas between them; from the environment only."""
    max_body_bytes: int = 32 * 1024 * 1024
    media_allow: tuple[str, ...] = ()
    """Hosts that images are fetched from which a request names by their address; empty = nothing is fetched."""
    max_images: int = 500
    """That a conversation may show; one that is shown twice counts twice."""
    max_image_megapixels: float = 64.0
    """Width times height of one image, in millions, as its header says."""
    max_messages: int = 10_000
    """Of one request; items of `input` and of `contents` count."""
    max_parts: int = 20_000
    """Of one request's messages together: parts and blocks of their content, their calls, entries of `logit_bias`."""
    max_tools: int = 1024
    """Of one request."""
    max_tools_bytes: int = 4 * 1024 * 1024
    """Of all declarations of one request's tools together."""
    max_json_nesting: int = 200
    """Levels of JSON in a tool's declaration or the template's arguments; at most 200."""
    max_calls: int = 4096
    """That run at once."""
    max_calls_per_rollout: int = 256
    """Of these, of one rollout."""
    max_waiting: int = 4096
    """Calls that wait for others to end."""
    queue_s: float = 30.0
    """How long one waits before it is refused."""
    disk_reserve_bytes: int = 512 * 1024 * 1024
    """Free on the store's disk, below which no rollout begins; 0 = never refused."""
    disk_floor_bytes: int = 64 * 1024 * 1024
    """Free on the store's disk, below which no call begins; 0 = never refused."""
    keep_alive_s: float = 15.0
    """Silence after which a streaming client is sent a keep-alive."""
    grace_s: float = 2.0
    """How long a call that nobody waits for goes on, so that its client can come back for it."""
    finish_patience_s: float = 30.0
    """How long closing a rollout waits for its running calls."""
    context_length: int = 8192
    """Of one sequence, for the embedded model."""
    slots: int = 2
    """Sequences that the embedded model samples at once."""
    log: str = "off"
    """How calls and events are told on standard error: a value of `turnstile.server.logs.LogForm`."""
    otel: str = "off"
    """Whether traces are made: a value of `turnstile.server.otel.Otel`."""
    quirks: Path | None = None
    """File of own entries for the table of harnesses' habits; TOML, or JSON if its name ends so."""
    no_quirks: tuple[str, ...] = ()
    """Names of habits that are not acted on."""


LONGEST_S = 5000 * 7 * 86_400.0
"""5000 weeks: what is longer has no date that it ends on."""
_BOUNDS: Mapping[str, tuple[float, float]] = {
    "continue_aborted": (0, 100),
    "rollout_memory_bytes": (1, math.inf),
    "idle_timeout_s": (0, LONGEST_S),
    "keep_for_s": (0, LONGEST_S),
    "keep_gb": (0, math.inf),
    "port": (0, 65_535),
    "max_body_bytes": (1, math.inf),
    "max_images": (0, math.inf),
    "max_image_megapixels": (0, math.inf),
    "max_messages": (1, math.inf),
    "max_parts": (1, math.inf),
    "max_tools": (0, math.inf),
    "max_tools_bytes": (0, math.inf),
    "max_json_nesting": (1, 200),
    "max_calls": (1, math.inf),
    "max_calls_per_rollout": (1, math.inf),
    "max_waiting": (0, math.inf),
    "queue_s": (0, LONGEST_S),
    "disk_reserve_bytes": (0, math.inf),
    "disk_floor_bytes": (0, math.inf),
    "keep_alive_s": (0.01, LONGEST_S),
    "grace_s": (0, LONGEST_S),
    "finish_patience_s": (0, LONGEST_S),
    "context_length": (64, math.inf),
    "slots": (1, math.inf),
}
"""The least and the most that each may be; infinity itself is none of them."""


def check_numbers(settings: Settings) -> None:
    """See that every number is one that a server can work with.

    Raises: CallerError that names the setting and what it may be.
    """
    for name, (least, most) in _BOUNDS.items():
        value = getattr(settings, name)
        if not isinstance(value, int | float) or not math.isfinite(value) or not least <= value <= most:
            bounds = f"from {least:.12g} to {most:.12g}" if math.isfinite(most) else f"of at least {least:g}"
            raise CallerError(f"`{name}` is {value}", f"Give a number {bounds}", code="invalid_value", param=name)


def choice_of(kind: type[Choice], value: str, setting: str) -> Choice:
    """The member of an enumeration that a setting's value names.

    Raises: CallerError that names the setting and the values that it takes.
    """
    if value not in {member.value for member in kind}:
        remedy = f"Give one of {', '.join(member.value for member in kind)}"
        raise CallerError(f"`{setting}` is `{value[:80]}`", remedy, code="invalid_value", param=setting)
    return kind(value)
