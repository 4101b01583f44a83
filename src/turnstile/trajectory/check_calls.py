"""E401 to E407: a sequence's ids are the ids that the engine ran and sampled, by hash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256

import msgspec

from turnstile.tokens import NO_IDS, IdRun, SegmentKind
from turnstile.trajectory.shapes import CallInfo, Rollout, SamplingInfo, Sequence
from turnstile.trajectory.violation import Fault

_NOTHING_SHA256 = NO_IDS.sha256()


class Completion(msgspec.Struct, frozen=True):
    """The tokens of one call in one sequence: token indices [start, end)."""

    call: int
    start: int
    end: int
    trainable: bool
    """Whether any of them is."""


def completions_of(sequence: Sequence) -> list[Completion]:
    """The completions of a sequence whose segments tile it, in order; adjacent segments of one call are one."""
    found: list[Completion] = []
    for segment, _ in sequence.sampled_segments():
        if segment.call is None:
            continue
        last = found[-1] if found else None
        if last is not None and last.call == segment.call and last.end == segment.start:
            trainable = last.trainable or segment.trainable
            found[-1] = Completion(last.call, last.start, segment.end, trainable)
        else:
            found.append(Completion(segment.call, segment.start, segment.end, segment.trainable))
    return found


class CallChecks:
    """The checks of one rollout. `completions` has the completions of each sequence that tiles."""

    def __init__(self, rollout: Rollout, completions: Mapping[int, list[Completion]]) -> None:
        self._rollout = rollout
        self._completions = completions
        self._owned: dict[int, IdRun] = {}
        for at, found in completions.items():
            for completion in found:
                if rollout.calls[completion.call].sequence == at:
                    ids = rollout.sequences[at].token_ids.slice(completion.start, completion.end)
                    self._owned[completion.call] = ids

    def check_sequence(self, at: int) -> Iterator[Fault]:
        """E401 to E405 and E407."""
        sequence = self._rollout.sequences[at]
        prefix = sha256()
        hashed = 0
        before: list[int] = []
        for completion in self._completions[at]:
            call = self._rollout.calls[completion.call]
            prefix.update(sequence.token_ids.slice(hashed, completion.start).packed)
            yield from _check_prompt(call, completion.start, prefix.hexdigest(), at)
            ids = sequence.token_ids.slice(completion.start, completion.end)
            prefix.update(ids.packed)
            hashed = completion.end
            if self._is_cut(completion, ids, at):
                continue
            yield from _check_completion(call, completion, ids, at)
            if not self._extends_parent(completion.call, before):
                message = f"call {call.call_id} does not extend its parent"
                yield Fault("E405", message, at, completion.start)
            before.append(completion.call)
        yield from self._check_replayed(sequence, at)
        yield from self._check_leaf(sequence, at)

    def _check_replayed(self, sequence: Sequence, at: int) -> Iterator[Fault]:
        """E402 for ids that were put back: all that the call sampled, or the beginning of it."""
        for segment in sequence.segments:
            if segment.kind != SegmentKind.REPLAYED or segment.call is None:
                continue
            call = self._rollout.calls[segment.call]
            ids = sequence.token_ids.slice(segment.start, segment.end)
            whole = self._owned.get(segment.call)
            is_part = whole is None or (len(ids) < len(whole) and whole.startswith(ids))
            is_longer = call.complete and len(ids) > call.usage.completion_tokens
            if ids.sha256() != call.completion_sha256 and (not is_part or is_longer):
                message = f"replayed ids of call {call.call_id} differ from what was sampled"
                yield Fault("E402", message, at, segment.start)

    def _is_cut(self, completion: Completion, ids: IdRun, at: int) -> bool:
        """Whether a stop token was put in the place of the completion's last ids, which stand in its own sequence."""
        whole = self._owned.get(completion.call)
        owner = self._rollout.calls[completion.call].sequence
        if whole is None or owner == at or completion.trainable:
            return False
        return len(ids) < len(whole) and whole.startswith(ids)

    def _extends_parent(self, at: int, before: list[int]) -> bool:
        parent = self._rollout.calls[at].parent
        while parent is not None and self._rollout.calls[parent].completion_sha256 == _NOTHING_SHA256:
            parent = self._rollout.calls[parent].parent
        return parent is None or parent in before

    def _check_leaf(self, sequence: Sequence, at: int) -> Iterator[Fault]:
        found = self._completions[at]
        length = len(sequence.token_ids)
        leaf = self._rollout.calls[sequence.leaf_call]
        if found and found[-1].call == sequence.leaf_call:
            if found[-1].end != length:
                yield Fault("E407", "sequence goes on after its leaf", at, found[-1].end)
        elif leaf.completion_sha256 != _NOTHING_SHA256:
            yield Fault("E407", f"sequence does not end with its leaf, call {leaf.call_id}", at, length)
        else:
            yield from _check_prompt(leaf, length, sequence.token_ids.sha256(), at)

    def check_finishes(self) -> Iterator[Fault]:
        """E406, for calls that are complete and stand in a sequence."""
        for number, ids in sorted(self._owned.items()):
            call = self._rollout.calls[number]
            told = _finish_by_ids(ids, self._rollout.samplings[call.sampling])
            if call.complete and call.finish in ("stop", "length") and call.finish not in told:
                message = f"finish of call {call.call_id} says {call.finish}, ids say {' or '.join(sorted(told))}"
                yield Fault("E406", message, call.sequence)


def _check_prompt(call: CallInfo, start: int, found_sha256: str, at: int) -> Iterator[Fault]:
    if found_sha256 != call.prompt_sha256:
        message = f"sequence differs from the prompt that the engine ran for call {call.call_id}"
        yield Fault("E401", message, at, start)
    # What an incomplete call's engine counted is known to be in doubt.
    if call.complete and call.usage.prompt_tokens != start:
        message = f"call {call.call_id}: engine counted {call.usage.prompt_tokens} prompt tokens, sequence has {start}"
        yield Fault("E403", message, at, start)


def _check_completion(call: CallInfo, completion: Completion, ids: IdRun, at: int) -> Iterator[Fault]:
    if ids.sha256() != call.completion_sha256:
        message = f"completion of call {call.call_id} differs from what was sampled"
        yield Fault("E402", message, at, completion.start)
    counted = call.usage.completion_tokens
    if call.complete and counted != len(ids):
        message = f"call {call.call_id}: engine counted {counted} sampled tokens, sequence has {len(ids)}"
        yield Fault("E404", message, at, completion.start)


def _finish_by_ids(ids: IdRun, sampling: SamplingInfo) -> set[str]:
    """The finishes that a completion's ids allow.

    A stop string leaves no id behind, and the end of the context leaves no count, so neither can be refuted by ids.
    """
    stops = sampling.stop_token_ids
    if stops is None:
        return {"stop", "length"}
    if ids and ids[len(ids) - 1] in stops:
        return {"stop"}
    told = {"length"}
    if sampling.stop or not stops:
        told.add("stop")
    return told
