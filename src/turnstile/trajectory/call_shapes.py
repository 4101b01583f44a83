"""The types of trajectory format 1.0 up to the call: heads, sampling settings and calls, and what all types share."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, TypeAlias

import msgspec

from turnstile.trajectory.float32 import shortest_float32

FORMAT = "turnstile.rollout"
FORMAT_VERSION = "1.0"

Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Whole: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
JsonObject: TypeAlias = dict[str, object]

STATUSES = frozenset({"running", "completed", "truncated", "failed", "aborted"})
HISTORIES = frozenset({"root", "spliced", "forked", "rerendered"})
CALL_KINDS = frozenset({"agent", "auxiliary", "discarded"})
FINISHES = frozenset({"stop", "length", "abort", "error"})
LOGPROBS_MODES = frozenset({"raw", "temperature", "processed", "unknown", "none"})


def snap(part: msgspec.Struct, names: Iterable[str]) -> None:
    """Give float32 fields of a part their shortest decimal form."""
    for name in names:
        value: float | None = getattr(part, name)
        if value is not None:
            msgspec.structs.force_setattr(part, name, shortest_float32(value))


class FormatPart(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the format, with whatever a newer version has put beside the known fields."""

    unknown: JsonObject = {}


class HeadInfo(FormatPart, frozen=True, kw_only=True):
    """What rendered the prompts of some calls. Two calls share one exactly when they were rendered alike."""

    model: str
    """As the engine calls it."""
    model_revision: str | None = None
    """Its commit or version."""
    engine: str
    """`vllm`, `sglang`, `llamacpp`, `embedded`."""
    engine_version: str | None = None
    """As it says itself."""
    tokenizer_sha256: str
    """Of `tokenizer.json`."""
    vocab_size: Count | None = None
    """Every id is below it."""
    chat_template_sha256: str | None = None
    """None = the engine rendered."""
    template_kwargs: JsonObject
    """Arguments of the chat template."""
    tools: Count | None = None
    """Index into the rollout's `tools`; None = no tools."""
    processor_sha256: str | None = None
    """Of the image processor's configuration."""
    mm_processor_kwargs: JsonObject | None = None
    """Arguments of the image processor."""


class SamplingInfo(FormatPart, frozen=True, kw_only=True):
    """Sampling settings in force, after the server's defaults; None = unknown."""

    temperature: float | None = None
    """float32, as all of these numbers."""
    top_p: float | None = None
    top_k: Whole | None = None
    """-1 = off."""
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: bool | None = None
    """Whether some ids were made more or less likely."""
    seed: Whole | None = None
    """Of the first choice."""
    max_tokens: Count | None = None
    """As the engine was asked."""
    stop: tuple[str, ...] | None = None
    """Stop strings."""
    stop_token_ids: tuple[int, ...] | None = None
    """Ids that end an answer."""
    structured_output: str | None = None
    """sha256 of the schema or grammar that constrained the sampling."""

    def __post_init__(self) -> None:
        snap(
            self,
            ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        )


class UsageInfo(FormatPart, frozen=True, kw_only=True):
    """Token counts of one call, as the engine counted."""

    prompt_tokens: Count
    """Images in their expanded form."""
    completion_tokens: Count
    """The stop token included."""
    cached_tokens: Count | None = None
    """Of the prompt, how many the engine had computed before."""


class CallInfo(FormatPart, frozen=True, kw_only=True):
    """One choice of one engine completion."""

    call_id: str
    """Unique in the rollout; the second choice of call `x` is `x.1`."""
    engine_request_id: str | None = None
    """The engine's own name for it."""
    parent: Whole | None = None
    """Index of the deepest call whose prompt and completion are a prefix of this prompt; None = a root."""
    history: str
    """How the prompt came about: `root`, `spliced`, `forked`, `rerendered`."""
    history_reason: str | None = None
    """A word of [reasons](reasons.md), with the index of the message at fault: `message_edited:2`."""
    fork_at: Count | None = None
    """First token index that differs from the nearest sequence held before."""
    kind: str
    """`agent`; `auxiliary`, a harness's own call; `discarded`, which nobody consumed."""
    kind_reason: str | None = None
    """Why it was discarded, or what the harness wanted."""
    agent_name: str | None = None
    """Which agent called."""
    dialect: str
    """The client's API, such as `openai.chat`."""
    choice_index: Count
    """n choices of one request have the same parent."""
    head: Whole
    """Index into `heads`."""
    sampling: Whole
    """Index into `samplings`."""
    sequence: Whole | None = None
    """Index of the sequence that owns its trainable tokens; None = it stands in none."""
    started_at: Time
    """When the engine was asked."""
    finished_at: Time | None = None
    """When its answer was complete."""
    finish: str
    """Derived from the ids: `stop`, `length`, `abort`, `error`."""
    engine_finish_reason: str | None = None
    """The engine's own word."""
    usage: UsageInfo
    """As the engine counted."""
    prompt_sha256: str
    """Ids hash of the prompt that the engine ran, images expanded."""
    completion_sha256: str
    """Ids hash of what it sampled."""
    logprobs_mode: str
    """Which distribution the recorded numbers belong to: `raw`, `temperature`, `processed`, `unknown`, `none`."""
    logprobs_temperature: float | None = None
    """The temperature inside the recorded numbers, float32: 1.0 for `raw`."""
    complete: bool
    """False if ids or all log-probabilities are missing, or their numbers disagree."""
    incomplete_reasons: tuple[str, ...]
    """Words of [reasons](reasons.md)."""

    def __post_init__(self) -> None:
        if self.logprobs_temperature != 1.0:
            snap(self, ("logprobs_temperature",))
