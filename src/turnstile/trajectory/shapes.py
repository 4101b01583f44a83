"""The neutral trajectory format, version 1.0, as types: what docs/reference/trajectory.md describes.

Field names are the file's names. A field that this version does not know is kept in `unknown` of the struct that
it stood in and written again, so a newer file passes through unharmed. Words from closed lists are kept as text
for the same reason; `validate` checks them against the lists here.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import Annotated

import msgspec

from turnstile.tokens import IdRun, LogprobRun, SegmentKind
from turnstile.trajectory.call_shapes import (
    CALL_KINDS,
    FINISHES,
    FORMAT,
    FORMAT_VERSION,
    HISTORIES,
    LOGPROBS_MODES,
    STATUSES,
    CallInfo,
    Count,
    FormatPart,
    HeadInfo,
    JsonObject,
    SamplingInfo,
    Time,
    UsageInfo,
    Whole,
    snap,
)
from turnstile.trajectory.float32 import Float32Run

__all__ = [
    "CALL_KINDS",
    "FINISHES",
    "FORMAT",
    "FORMAT_VERSION",
    "HISTORIES",
    "LOGPROBS_MODES",
    "SEGMENT_KINDS",
    "STATUSES",
    "ArrayEntry",
    "CallInfo",
    "Count",
    "ErrorInfo",
    "Float32Run",
    "FormatPart",
    "HeadInfo",
    "JsonObject",
    "MediaEntry",
    "Rollout",
    "SamplingInfo",
    "Sequence",
    "SequenceSegment",
    "Time",
    "TokenCounts",
    "UsageInfo",
    "Whole",
]

_SAMPLED = SegmentKind.SAMPLED.value
SEGMENT_KINDS = frozenset(kind.value for kind in SegmentKind)


class SequenceSegment(FormatPart, frozen=True, kw_only=True):
    """Token indices [start, end) of one sequence, all of one origin."""

    start: Whole
    """First token."""
    end: Whole
    """Behind the last token."""
    kind: str
    """`prompt`, `observation`, `scaffold`, `sampled`, `replayed`."""
    call: Whole | None = None
    """Index of the call that drew these tokens (`sampled`, `replayed`)."""
    trainable: bool = False
    """Whether a loss may count it; only of `sampled` ones."""
    mask_reason: str | None = None
    """Why sampled tokens are not trainable: a word of [reasons](reasons.md), or `user:...`."""
    weight: float = 1.0
    """float32, of each of its tokens."""
    policy_version_min: Whole | None = None
    """Of the weights that drew these tokens, the oldest that it may have been."""
    policy_version_max: Whole | None = None
    """Equal to min = exact; both None = unknown."""

    def __post_init__(self) -> None:
        # Nearly all weigh 1, and there may be many.
        if self.weight != 1.0:
            snap(self, ("weight",))


class MediaEntry(FormatPart, frozen=True, kw_only=True):
    """One image, video or audio clip, and the run of placeholder ids that stands for it."""

    sha256: str
    """Of the bytes as the client sent them."""
    mime: str
    """Media type, such as `image/png`."""
    kind: str
    """`image`, `video`, `audio`."""
    offset: Count
    """Token index of the first placeholder."""
    length: Count
    """Number of ids in its run, expanded."""
    num_tokens: Count
    """Embeddings that the run consumes."""
    placeholder_id: Count
    """The one id that stands for it when collapsed."""
    width: Count | None = None
    """Pixels as sent."""
    height: Count | None = None
    """Pixels as sent."""


class ArrayEntry(FormatPart, frozen=True, kw_only=True):
    """A side array in a file of its own."""

    uri: str
    """Name of the file in `FILE.arrays/`."""
    sha256: str
    """Of the whole file."""
    dtype: str
    """`uint8`, `int16`, `int32`, `int64`, `float32`, `float64`."""
    shape: tuple[Count, ...]
    """C order."""
    axis: str
    """`tokens`: row j belongs to token start + j; `sampled`: to the j-th sampled token."""
    start: Count
    """First token, or sampled token, that has a row."""
    end: Count
    """Behind the last one."""


class Sequence(FormatPart, frozen=True, kw_only=True, dict=True):
    """One training row: exactly the prompt and completion of `leaf_call`.

    Shapes: T tokens, S of them in `sampled` segments. `logprobs[k]` is the natural log of the probability of the
    k-th sampled token given everything before it; nothing is shifted.
    """

    sequence_id: str
    """`ROLLOUT/INDEX`, with `#ATTEMPT` from the second attempt on."""
    head: Whole
    """Index into `heads`."""
    leaf_call: Whole
    """Index of the call whose prompt and completion this is."""
    agent_name: str | None = None
    """Which agent it is of."""
    token_ids: IdRun
    """Prompt and completion of `leaf_call`, images expanded."""
    prompt_length: Whole
    """Index of the first sampled token; T if there is none."""
    segments: tuple[SequenceSegment, ...]
    """Tile [0, T): in order, without gap or overlap."""
    logprobs: LogprobRun
    """Natural logarithm, unshifted; null only where not trainable."""
    token_weights: Float32Run | None = None
    """Finer than a segment's weight, and multiplied with it."""
    advantages: Float32Run | None = None
    """Only if something computed them before."""
    reward: float | None = None
    """Overrides the rollout's reward; None = inherit."""
    complete: bool
    """Whether every call on its path is."""
    incomplete_reasons: tuple[str, ...]
    """Words of [reasons](reasons.md)."""
    media: tuple[MediaEntry, ...]
    """By offset, disjoint."""
    arrays: dict[str, ArrayEntry]
    """By name; `routed_experts`, `topk_ids`, `topk_logprobs`, `kept_ids` and `kept_offsets` are reserved."""
    messages: tuple[Whole, ...]
    """Its path, as indices into the rollout's `messages`."""

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
    """Counted from the journal."""
    trainable: Count
    """Each in the sequence that owns it."""
    masked: dict[str, Count]
    """By mask reason."""
    discarded: dict[str, Count]
    """By the reason of their call."""


class ErrorInfo(FormatPart, frozen=True, kw_only=True):
    """Why a rollout failed."""

    type: str
    """A word of [reasons](reasons.md)."""
    message: str
    """For people."""


class Rollout(FormatPart, frozen=True, kw_only=True):
    """One rollout: everything that a trainer, or a person, needs to know of it."""

    format: str = FORMAT
    """`turnstile.rollout`."""
    format_version: str = FORMAT_VERSION
    """`1.MINOR`: the lowest that holds what is written."""
    rollout_id: str
    """Unique in a file together with `attempt`."""
    attempt: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    """From 1."""
    group_id: str | None = None
    """Rollouts to be compared with each other."""
    task_id: str | None = None
    """The task."""
    sample_index: Count | None = None
    """Its place in the group."""
    parent_rollout_id: str | None = None
    """Of a sub-agent that ran as a rollout of its own."""
    parent_call_id: str | None = None
    """The call that it was made for."""
    agent_name: str | None = None
    """Of its main agent."""
    created_at: Time
    """When it was opened."""
    finished_at: Time | None = None
    """None = it still runs."""
    status: str
    """`running`, `completed`, `truncated`, `failed`, `aborted`, as the runner said."""
    stop_reason: str | None = None
    """`stop_reason` of the runner's metadata at the end."""
    error: ErrorInfo | None = None
    """Of a failed rollout, its last failed call."""
    trainable: bool
    """False: no consumer trains on any of it."""
    mask_reasons: tuple[str, ...]
    """Why not."""
    reward: float | None = None
    """None = unscored, which is not 0."""
    rewards: dict[str, float | None]
    """Named parts of the reward, float64; nothing adds them up."""
    metrics: dict[str, float | None]
    """What the runner measured, float64."""
    heads: tuple[HeadInfo, ...]
    """What rendered the prompts."""
    samplings: tuple[SamplingInfo, ...]
    """Distinct sampling settings."""
    calls: tuple[CallInfo, ...]
    """In order of start."""
    sequences: tuple[Sequence, ...]
    """In order of their leaf calls."""
    messages: tuple[JsonObject, ...]
    """Each distinct message once, in OpenAI's chat form, for people. Ids never come from here."""
    tools: tuple[tuple[JsonObject, ...], ...]
    """Each distinct list of tools once."""
    token_counts: TokenCounts
    """Where each sampled token went."""
    extra: JsonObject
    """Anything else, under keys with a prefix."""
