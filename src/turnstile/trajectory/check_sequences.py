"""E201 to E209 and E301 to E305: the segments and the numbers of one sequence, each sequence by itself."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator

from turnstile.tokens import LOWEST_LOGPROB, SegmentKind
from turnstile.trajectory.packed import all_finite, bounds, float_array, id_array
from turnstile.trajectory.shapes import SEGMENT_KINDS, Float32Run, Rollout, Sequence, SequenceSegment
from turnstile.trajectory.violation import Fault

_FROM_A_CALL = frozenset({SegmentKind.SAMPLED.value, SegmentKind.REPLAYED.value})
_SAMPLED = SegmentKind.SAMPLED.value
_HIGHEST_LOGPROB = 1e-4


def check_tiling(sequence: Sequence, at: int) -> Iterator[Fault]:
    """E201, E202. The checks of a sequence behind this one rely on it."""
    expected = 0
    for segment in sequence.segments:
        if segment.start != expected or segment.end <= segment.start:
            yield Fault("E201", f"gap, overlap or empty segment at token {expected}", at, expected)
            return
        expected = segment.end
    length = len(sequence.token_ids)
    if expected != length or not length:
        yield Fault("E202", f"segments cover {expected} of {length} tokens", at, expected)


def check_sequence(rollout: Rollout, at: int) -> Iterator[Fault]:
    """E203 to E209 and E301 to E305 for a sequence whose segments tile it."""
    sequence = rollout.sequences[at]
    for segment in sequence.segments:
        if _may_be_at_fault(segment):
            yield from _check_segment(segment, at)
    yield from check_prompt_length(sequence, at)
    yield from _check_vocabulary(sequence, rollout.heads[sequence.head].vocab_size, at)
    yield from _check_pieces(rollout, sequence, at)
    yield from check_lengths(sequence, at)
    yield from _check_logprobs(sequence, at)
    yield from _check_weights(sequence, at)
    yield from _check_meaning(rollout, sequence, at)


def _may_be_at_fault(segment: SequenceSegment) -> bool:
    """A quick look at what most segments are: context, or trained, of one known version."""
    if segment.kind == _SAMPLED:
        is_usual = segment.call is not None and segment.trainable
    else:
        is_usual = segment.kind not in _FROM_A_CALL and not segment.trainable
    return not is_usual or segment.policy_version_min != segment.policy_version_max


def _check_segment(segment: SequenceSegment, at: int) -> Iterator[Fault]:
    start = segment.start
    if segment.kind in _FROM_A_CALL and segment.call is None:
        yield Fault("E203", f"{segment.kind} segment without a call", at, start)
    # What a kind of a newer version is, is not known here; it is not trained.
    if segment.kind in SEGMENT_KINDS and segment.kind != SegmentKind.SAMPLED and segment.trainable:
        yield Fault("E204", f"trainable {segment.kind} segment", at, start)
    if segment.kind == SegmentKind.SAMPLED and not segment.trainable and not segment.mask_reason:
        yield Fault("E205", "masked without a reason", at, start)
    low, high = segment.policy_version_min, segment.policy_version_max
    if (low is None) != (high is None) or (low is not None and high is not None and low > high):
        yield Fault("E209", "policy version range reversed or half known", at, start)


def check_prompt_length(sequence: Sequence, at: int) -> Iterator[Fault]:
    """E206."""
    first = next((segment.start for segment, _ in sequence.sampled_segments()), len(sequence.token_ids))
    if sequence.prompt_length != first:
        yield Fault("E206", f"prompt_length {sequence.prompt_length}, first sampled token at {first}", at, first)


def _check_vocabulary(sequence: Sequence, vocab_size: int | None, at: int) -> Iterator[Fault]:
    limit = 2**31 if vocab_size is None else vocab_size
    low, high = bounds(id_array(sequence.token_ids)) or (0, 0)
    if low < 0 or high >= limit:
        for index, token_id in enumerate(sequence.token_ids):
            if not 0 <= token_id < limit:
                yield Fault("E207", f"id {token_id} outside the vocabulary", at, index)


def _check_pieces(rollout: Rollout, sequence: Sequence, at: int) -> Iterator[Fault]:
    seen: dict[int, int] = {}
    for segment, _ in sequence.sampled_segments():
        if segment.call is not None:
            if seen.get(segment.call, segment.start) != segment.start:
                name = rollout.calls[segment.call].call_id
                yield Fault("E208", f"completion of call {name} is in pieces", at, segment.start)
            seen[segment.call] = segment.end


def check_lengths(sequence: Sequence, at: int) -> Iterator[Fault]:
    """E301."""
    sampled = sum(segment.end - segment.start for segment, _ in sequence.sampled_segments())
    for name, length in (
        ("log-probabilities", len(sequence.logprobs)),
        ("token weights", _length(sequence.token_weights, sampled)),
        ("advantages", _length(sequence.advantages, sampled)),
    ):
        if length != sampled:
            yield Fault("E301", f"{length} {name} for {sampled} sampled tokens", at)


def _length(run: Float32Run | None, if_absent: int) -> int:
    return if_absent if run is None else len(run)


def _check_logprobs(sequence: Sequence, at: int) -> Iterator[Fault]:
    run = sequence.logprobs
    low, high = bounds(float_array(run.packed, run.unknown)) or (0.0, 0.0)
    if low <= LOWEST_LOGPROB or high > _HIGHEST_LOGPROB or not all_finite(run.packed):
        for index, value in enumerate(run.tolist()):
            if value is not None and not LOWEST_LOGPROB < value <= _HIGHEST_LOGPROB:
                yield Fault("E302", f"log-probability {value:.9g} at sampled token {index}", at, index)
    for segment, before_S in sequence.sampled_segments() if run.unknown else ():
        end_S = before_S + segment.end - segment.start
        inside = run.unknown[bisect_left(run.unknown, before_S) : bisect_left(run.unknown, end_S)]
        if segment.trainable:
            for index in inside:
                yield Fault("E303", "trainable token without log-probability", at, index)


def _check_weights(sequence: Sequence, at: int) -> Iterator[Fault]:
    for segment in sequence.segments:
        if not (math.isfinite(segment.weight) and segment.weight >= 0):
            yield Fault("E304", f"weight {segment.weight:.9g}", at, segment.start)
    if sequence.token_weights is not None:
        for index, weight in enumerate(sequence.token_weights.tolist()):
            if not (math.isfinite(weight) and weight >= 0):
                yield Fault("E304", f"weight {weight:.9g}", at, index)


def _check_meaning(rollout: Rollout, sequence: Sequence, at: int) -> Iterator[Fault]:
    for segment, _ in sequence.sampled_segments():
        if segment.trainable and segment.call is not None:
            call = rollout.calls[segment.call]
            if call.logprobs_mode in ("none", "unknown"):
                message = f"meaning of log-probabilities of call {call.call_id} unknown ({call.logprobs_mode})"
                yield Fault("E305", message, at, segment.start)
