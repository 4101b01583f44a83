"""E501 to E506: each sampled token is trained at most once, and none is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from turnstile.trajectory.check_calls import Completion
from turnstile.trajectory.shapes import CALL_KINDS, Rollout
from turnstile.trajectory.violation import Fault

_SHARE_ROUNDING = 1e-4


def check_ownership(rollout: Rollout, completions: Mapping[int, list[Completion]]) -> Iterator[Fault]:
    """Who trains what. `completions` has the completions of each sequence that tiles."""
    trained: dict[int, list[int]] = {}
    for at, found in completions.items():
        for completion in found:
            if completion.trainable:
                trained.setdefault(completion.call, []).append(at)
    for number, sequences in sorted(trained.items()):
        yield from _check_trained(rollout, number, sequences)
        yield from _check_whole(rollout, number, sequences)
    yield from _check_owned(rollout, completions)
    yield from _check_counts(rollout)


def _check_trained(rollout: Rollout, number: int, sequences: list[int]) -> Iterator[Fault]:
    call = rollout.calls[number]
    shared = len(sequences) > 1 and _is_split(rollout, number)
    if len(sequences) > 1 and not shared:
        message = f"call {call.call_id} is trained in sequences {' and '.join(map(str, sequences))}"
        yield Fault("E501", message, sequences[1])
    if call.kind in CALL_KINDS and call.kind != "agent":
        yield Fault("E502", f"{call.kind} call {call.call_id} is trainable", sequences[0])
    if not shared:
        for at in sequences:
            if call.sequence != at:
                says = "none" if call.sequence is None else call.sequence
                yield Fault("E503", f"call {call.call_id} says sequence {says}, found in {at}", at)


def _check_whole(rollout: Rollout, number: int, sequences: list[int]) -> Iterator[Fault]:
    """`complete` is about the record: the beginning of an aborted answer is complete where all of it is known."""
    call = rollout.calls[number]
    if not call.complete or call.finish == "error":
        why = f"finish {call.finish}" if call.complete else "incomplete"
        yield Fault("E506", f"call {call.call_id} is trained and {why}", sequences[0])
    for at in sequences:
        if not rollout.sequences[at].complete:
            yield Fault("E506", f"call {call.call_id} is trained in an incomplete sequence", at)


def _is_split(rollout: Rollout, number: int) -> bool:
    """Whether a call is shared out over sequences, so that together they give it the weight of one."""
    shares = [
        max(weights)
        for sequence in rollout.sequences
        if (
            weights := [
                segment.weight
                for segment, _ in sequence.sampled_segments()
                if segment.call == number and segment.trainable
            ]
        )
    ]
    return max(shares) < 1 and abs(sum(shares) - 1) <= _SHARE_ROUNDING


def _check_owned(rollout: Rollout, completions: Mapping[int, list[Completion]]) -> Iterator[Fault]:
    for number, call in enumerate(rollout.calls):
        if not (rollout.trainable and call.kind == "agent" and call.complete):
            continue
        holder = None if call.sequence is None else completions.get(call.sequence)
        held = holder is not None and any(completion.call == number for completion in holder)
        # A sequence that does not tile has been reported already.
        unknown = call.sequence is not None and holder is None
        if not held and not unknown and (call.sequence is None or call.usage.completion_tokens):
            yield Fault("E504", f"sampled tokens of call {call.call_id} are in no sequence", index=number)


def _check_counts(rollout: Rollout) -> Iterator[Fault]:
    counts = rollout.token_counts
    accounted = counts.trainable + sum(counts.masked.values()) + sum(counts.discarded.values())
    if counts.sampled != accounted:
        yield Fault("E505", f"{counts.sampled} sampled, {accounted} accounted for")
    trainable, masked = _counted(rollout)
    if counts.trainable != trainable:
        yield Fault("E505", f"{counts.trainable} trainable, {trainable} in the sequences")
    for reason in sorted({*counts.masked, *masked}):
        said, found = counts.masked.get(reason, 0), masked[reason]
        if said != found:
            yield Fault("E505", f"{said} masked as {reason}, {found} in the sequences")


def _counted(rollout: Rollout) -> tuple[int, Counter[str]]:
    """Trainable and masked tokens, each in the sequence that owns it."""
    trainable = 0
    masked: Counter[str] = Counter()
    for at, sequence in enumerate(rollout.sequences):
        for segment, _ in sequence.sampled_segments():
            if segment.call is None or rollout.calls[segment.call].sequence not in (at, None):
                continue
            length = max(0, segment.end - segment.start)
            if segment.trainable:
                trainable += length
            else:
                masked[segment.mask_reason or ""] += length
    return trainable, masked
