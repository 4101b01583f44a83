"""The neutral trajectory format, version 1.0, as types: what docs/reference/trajectory.md describes.

Field names are the file's names. A field that this version does not know is kept in `unknown` of the struct that
it stood in and written again, so a newer file passes through unharmed. Words from closed lists are kept as text
for the same reason; `validate` checks them against the lists here.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from typing import Annotated, TypeAlias

import msgspec

from turnstile.tokens import IdRun, LogprobRun, SegmentKind
from turnstile.trajectory.float32 import Float32Run, shortest_float32

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
_SAMPLED = SegmentKind.SAMPLED.value
SEGMENT_KINDS = frozenset(kind.value for kind in SegmentKind)


def _snap(part: msgspec.Struct, names: Iterable[str]) -> None:
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
    model_revision: str | None = None
    engine: str
    engine_version: str | None = None
    tokenizer_sha256: str
    vocab_size: Count | None = None
    chat_template_sha256: str | None = None
    template_kwargs: JsonObject
    tools: Count | None = None
    """Index into the rollout's `tools`; None = no tools."""
    processor_sha256: str | None = None
    mm_processor_kwargs: JsonObject | None = None


class SamplingInfo(FormatPart, frozen=True, kw_only=True):
    """Sampling settings in force, after the server's defaults; None = unknown."""

    temperature: float | None = None
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
    max_tokens: Count | None = None
    stop: tuple[str, ...] | None = None
    stop_token_ids: tuple[int, ...] | None = None
    structured_output: str | None = None
    """sha256 of the schema or grammar that constrained the sampling."""

    def __post_init__(self) -> None:
        _snap(
            self,
            ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        )


class UsageInfo(FormatPart, frozen=True, kw_only=True):
    """Token counts of one call, as the engine counted."""

    prompt_tokens: Count
    completion_tokens: Count
    cached_tokens: Count | None = None


class CallInfo(FormatPart, frozen=True, kw_only=True):
    """One choice of one engine completion."""

    call_id: str
    engine_request_id: str | None = None
    parent: Whole | None = None
    """Index of the deepest call whose prompt and completion are a prefix of this prompt; None = a root."""
    history: str
    history_reason: str | None = None
    fork_at: Count | None = None
    """First token index that differs from the nearest sequence held before."""
    kind: str
    kind_reason: str | None = None
    agent_name: str | None = None
    dialect: str
    choice_index: Count
    head: Whole
    sampling: Whole
    sequence: Whole | None = None
    """Index of the sequence that owns its trainable tokens; None = it stands in none."""
    started_at: Time
    finished_at: Time | None = None
    finish: str
    engine_finish_reason: str | None = None
    usage: UsageInfo
    prompt_sha256: str
    completion_sha256: str
    logprobs_mode: str
    logprobs_temperature: float | None = None
    """The temperature inside the recorded numbers, float32: 1.0 for `raw`."""
    complete: bool
    incomplete_reasons: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.logprobs_temperature != 1.0:
            _snap(self, ("logprobs_temperature",))


class SequenceSegment(FormatPart, frozen=True, kw_only=True):
    """Token indices [start, end) of one sequence, all of one origin."""

    start: Whole
    end: Whole
    kind: str
    call: Whole | None = None
    """Index of the call that drew these tokens (`sampled`, `replayed`)."""
    trainable: bool = False
    mask_reason: str | None = None
    weight: float = 1.0
    policy_version_min: Whole | None = None
    policy_version_max: Whole | None = None
    """Equal to min = exact; both None = unknown."""

    def __post_init__(self) -> None:
        # Nearly all weigh 1, and there may be many.
        if self.weight != 1.0:
            _snap(self, ("weight",))


class MediaEntry(FormatPart, frozen=True, kw_only=True):
    """One image, video or audio clip, and the run of placeholder ids that stands for it."""

    sha256: str
    mime: str
    kind: str
    offset: Count
    length: Count
    num_tokens: Count
    """Embeddings that the run consumes."""
    placeholder_id: Count
    width: Count | None = None
    height: Count | None = None


class ArrayEntry(FormatPart, frozen=True, kw_only=True):
    """A side array in a file of its own."""

    uri: str
    sha256: str
    dtype: str
    shape: tuple[Count, ...]
    axis: str
    """`tokens`: row j belongs to token start + j; `sampled`: to the j-th sampled token."""
    start: Count
    end: Count


class Sequence(FormatPart, frozen=True, kw_only=True, dict=True):
    """One training row: exactly the prompt and completion of `leaf_call`.

    Shapes: T tokens, S of them in `sampled` segments. `logprobs[k]` is the natural log of the probability of the
    k-th sampled token given everything before it; nothing is shifted.
    """

    sequence_id: str
    head: Whole
    leaf_call: Whole
    agent_name: str | None = None
    token_ids: IdRun
    prompt_length: Whole
    """Index of the first sampled token; T if there is none."""
    segments: tuple[SequenceSegment, ...]
    logprobs: LogprobRun
    token_weights: Float32Run | None = None
    advantages: Float32Run | None = None
    reward: float | None = None
    """Overrides the rollout's reward; None = inherit."""
    complete: bool
    incomplete_reasons: tuple[str, ...]
    media: tuple[MediaEntry, ...]
    arrays: dict[str, ArrayEntry]
    messages: tuple[Whole, ...]

    def sampled_segments(self) -> Iterator[tuple[SequenceSegment, int]]:
        """Each sampled segment with the index of its first token among the sampled ones."""
        return iter(self._sampled)

    @cached_property
    def _sampled(self) -> tuple[tuple[SequenceSegment, int], ...]:
        sampled = [segment for segment in self.segments if segment.kind == _SAMPLED]
        before_S = accumulate((segment.end - segment.start for segment in sampled), initial=0)
        return tuple(zip(sampled, before_S, strict=False))

    def loss_mask_T(self) -> array[int]:
        """int8[T]: 1 for tokens that a loss may count, else 0."""
        mask_T = array("b", bytes(len(self.token_ids)))
        for segment, _ in self.sampled_segments():
            if segment.trainable:
                mask_T[segment.start : segment.end] = array("b", b"\x01" * (segment.end - segment.start))
        return mask_T

    def logprobs_T(self, fill: float) -> array[float]:
        """float32[T]: the recorded number where there is one, else `fill`."""
        values_S = array("f", self.logprobs.packed)
        if sys.byteorder == "big":
            values_S.byteswap()
        for at in self.logprobs.unknown:
            values_S[at] = fill
        return self._spread(values_S, fill)

    def weights_T(self) -> array[float]:
        """float32[T]: segment weight times token weight where trainable, else 0."""
        weights_S = array("f")
        for segment, _ in self.sampled_segments():
            weight = segment.weight if segment.trainable else 0.0
            weights_S.extend(array("f", [weight]) * (segment.end - segment.start))
        if self.token_weights is not None:
            finer = self.token_weights.tolist()
            weights_S = array("f", [a * b for a, b in zip(weights_S, finer, strict=True)])
        return self._spread(weights_S, 0.0)

    def versions_T(self) -> array[int]:
        """int64[T]: the newest policy version that may have drawn the token; -1 where not sampled or unknown."""
        versions_T = array("q", [-1]) * len(self.token_ids)
        for segment, _ in self.sampled_segments():
            if segment.policy_version_max is not None:
                length = segment.end - segment.start
                versions_T[segment.start : segment.end] = array("q", [segment.policy_version_max]) * length
        return versions_T

    def _spread(self, values_S: array[float], fill: float) -> array[float]:
        spread_T = array("f", [fill]) * len(self.token_ids)
        for segment, before_S in self.sampled_segments():
            spread_T[segment.start : segment.end] = values_S[before_S : before_S + segment.end - segment.start]
        return spread_T


class TokenCounts(FormatPart, frozen=True, kw_only=True):
    """Every token that the engine sampled, counted once: sampled = trainable + all masked + all discarded."""

    sampled: Count
    trainable: Count
    masked: dict[str, Count]
    discarded: dict[str, Count]


class ErrorInfo(FormatPart, frozen=True, kw_only=True):
    """Why a rollout failed."""

    type: str
    message: str


class Rollout(FormatPart, frozen=True, kw_only=True):
    """One rollout: everything that a trainer, or a person, needs to know of it."""

    format: str = FORMAT
    format_version: str = FORMAT_VERSION
    rollout_id: str
    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    group_id: str | None = None
    task_id: str | None = None
    sample_index: Count | None = None
    parent_rollout_id: str | None = None
    parent_call_id: str | None = None
    agent_name: str | None = None
    created_at: Time
    finished_at: Time | None = None
    status: str
    stop_reason: str | None = None
    error: ErrorInfo | None = None
    trainable: bool
    mask_reasons: tuple[str, ...]
    reward: float | None = None
    """None = unscored, which is not 0."""
    rewards: dict[str, float | None]
    metrics: dict[str, float | None]
    heads: tuple[HeadInfo, ...]
    samplings: tuple[SamplingInfo, ...]
    calls: tuple[CallInfo, ...]
    sequences: tuple[Sequence, ...]
    messages: tuple[JsonObject, ...]
    tools: tuple[tuple[JsonObject, ...], ...]
    token_counts: TokenCounts
    extra: JsonObject
