"""What of a sequence can be recomputed: its sampled tokens, with what each recorded number means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Ordered

import msgspec
from msgspec.structs import replace

from turnstile.tokens import IdRun, IdsDigest
from turnstile.trajectory.format import CallInfo, MediaEntry, Rollout, SamplingInfo, Sequence

KeptSet = tuple[int, ...]
"""Ids that a filter left to be sampled; empty: nothing was filtered."""
NO_LOGPROBS = "no log-probabilities were recorded"
SOME_MISSING = "some log-probabilities are missing"
_OFF = 1e-9


class Filter(msgspec.Struct, frozen=True):
    """What was cut off before sampling, after the temperature."""

    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0

    @property
    def is_on(self) -> bool:
        """Whether it cuts anything."""
        return self.top_p < 1.0 - _OFF or self.top_k > 0 or self.min_p > _OFF


NO_FILTER = Filter()


class Drawn(msgspec.Struct, frozen=True):
    """One sampled token and its recorded number."""

    at: int
    """Its token index in the sequence."""
    logprob: float
    temperature: float
    """By which the logits are divided inside the number."""
    call: int
    filter: Filter = NO_FILTER
    """What was cut off inside the number, where no kept set is recorded."""
    kept: KeptSet = ()
    sampling_temperature: float | None = None
    """At which it was sampled; None = unknown."""


class Subject(msgspec.Struct, frozen=True):
    """A sequence as the audit sees it."""

    sequence_id: str
    token_ids: IdRun
    drawn_D: tuple[Drawn, ...]
    media: tuple[MediaEntry, ...] = ()
    mm_processor_kwargs: msgspec.Raw = msgspec.Raw(b"{}")
    left_out: tuple[str, ...] = ()
    """Why tokens are not among those drawn, each reason once."""
    other_prompts: Mapping[int, str] = {}
    """Hash of the prompt that the engine ran, for each call of which these ids have another."""
    vocab_size: int = 0
    """0 = unknown."""


Kept = Callable[[Sequence], "Ordered[KeptSet] | None"]
"""The kept sets of a sequence, one a sampled token; None = it has none. Raises: StoreError if they are damaged."""


def subject_of(rollout: Rollout, sequence: Sequence, kept: Kept) -> Subject:
    """What of a sequence can be compared. Raises: StoreError as `kept` does."""
    logprobs_S = sequence.logprobs.tolist()
    kept_S = kept(sequence)
    drawn: list[Drawn] = []
    left_out: dict[str, None] = {}
    for segment, before_S in sequence.sampled_segments():
        if segment.call is None:
            continue
        call = rollout.calls[segment.call]
        sampling = rollout.samplings[call.sampling]
        if why := _why_not(call, sampling):
            left_out[why] = None
            continue
        like = Drawn(
            at=segment.start,
            logprob=0.0,
            temperature=call.logprobs_temperature or 1.0,
            call=segment.call,
            filter=_filter_of(call, sampling) if kept_S is None else NO_FILTER,
            sampling_temperature=sampling.temperature,
        )
        for offset, logprob in enumerate(logprobs_S[before_S : before_S + segment.end - segment.start]):
            if logprob is None:
                left_out[SOME_MISSING] = None
                continue
            kept_set = kept_S[before_S + offset] if kept_S is not None else ()
            drawn.append(replace(like, at=segment.start + offset, logprob=logprob, kept=kept_set))
    return Subject(
        sequence_id=sequence.sequence_id,
        token_ids=sequence.token_ids,
        drawn_D=tuple(drawn),
        media=sequence.media,
        mm_processor_kwargs=msgspec.Raw(msgspec.json.encode(rollout.heads[sequence.head].mm_processor_kwargs or {})),
        left_out=tuple(left_out),
        other_prompts=_other_prompts(rollout, sequence),
        vocab_size=rollout.heads[sequence.head].vocab_size or 0,
    )


def _other_prompts(rollout: Rollout, sequence: Sequence) -> dict[int, str]:
    digest, hashed = IdsDigest(), 0
    starts: dict[int, int] = {}
    for segment, _ in sequence.sampled_segments():
        if segment.call is not None:
            starts.setdefault(segment.call, segment.start)
    other: dict[int, str] = {}
    for call, start in starts.items():
        digest, hashed = digest.then(sequence.token_ids.slice(hashed, start)), start
        if digest.hexdigest() != rollout.calls[call].prompt_sha256:
            other[call] = rollout.calls[call].prompt_sha256
    return other


def _why_not(call: CallInfo, sampling: SamplingInfo) -> str:
    """Why the numbers of a call cannot be recomputed from ids and weights alone; empty: they can."""
    match call.logprobs_mode:
        case "none":
            return NO_LOGPROBS
        case "raw" | "unknown":
            # The audit is how one finds out what unknown numbers are: they are taken as the model's own first.
            return ""
        case _:
            pass
    if call.logprobs_temperature == 0.0 or (call.logprobs_mode == "processed" and sampling.temperature == 0.0):
        return "greedy sampling has no processed log-probabilities"
    penalties = (sampling.presence_penalty, sampling.frequency_penalty)
    inside = {
        "a penalty": any(penalties) or sampling.repetition_penalty not in (None, 1.0),
        "a logit bias": bool(sampling.logit_bias),
        "a grammar": sampling.structured_output is not None,
    }
    return next((f"{what} stands inside the numbers" for what, is_there in inside.items() if is_there), "")


def _filter_of(call: CallInfo, sampling: SamplingInfo) -> Filter:
    if call.logprobs_mode != "processed":
        return NO_FILTER
    return Filter(
        top_p=1.0 if sampling.top_p is None else sampling.top_p,
        top_k=-1 if sampling.top_k is None else sampling.top_k,
        min_p=sampling.min_p or 0.0,
    )
