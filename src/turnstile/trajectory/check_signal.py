"""W801 to W805: what a trainer may stumble over although nothing is wrong with the file."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from turnstile.trajectory.shapes import CallInfo, Rollout, SamplingInfo
from turnstile.trajectory.violation import Fault, Violation

_MODES = {"processed": "after all samplers", "raw": "the model's own, as with a grammar or at temperature 0"}
"""What the usual modes mean to a person."""
_OTHER = "a trainer that recomputes gets another distribution"


def check_signal(rollout: Rollout) -> Iterator[Fault]:
    """W801, W804 and W805: one rollout by itself."""
    if rollout.trainable and rollout.reward is None:
        running = f"; still running: POST /rollouts/{rollout.rollout_id}/finish" if rollout.status == "running" else ""
        yield Fault("W801", f"no reward was given{running}")
    kept_sets = all({"kept_ids", "kept_offsets"} <= sequence.arrays.keys() for sequence in rollout.sequences)
    said: set[str] = set()
    for number, call in trained_calls(rollout):
        for reason in _other_distribution(call, rollout.samplings[call.sampling], kept_sets=kept_sets):
            if reason not in said:
                said.add(reason)
                yield Fault("W804", reason, index=number)
    for at, sequence in enumerate(rollout.sequences):
        for segment, _ in sequence.sampled_segments():
            low, high = segment.policy_version_min, segment.policy_version_max
            if low is not None and high is not None and high - low > 1:
                yield Fault("W805", f"off-policy tokens of unknown version, {low} to {high}", at, segment.start)


def trained_calls(rollout: Rollout) -> Iterator[tuple[int, CallInfo]]:
    """Calls with trainable tokens, by index; one that leads nowhere (E105) is none."""
    trained = {
        segment.call
        for sequence in rollout.sequences
        for segment, _ in sequence.sampled_segments()
        if segment.trainable and segment.call is not None and 0 <= segment.call < len(rollout.calls)
    }
    for number in sorted(trained):
        yield number, rollout.calls[number]


def _other_distribution(call: CallInfo, sampling: SamplingInfo, *, kept_sets: bool) -> Iterator[str]:
    filters = {
        "top_p": sampling.top_p is not None and sampling.top_p < 1,
        "top_k": sampling.top_k is not None and sampling.top_k > 0,
        "min_p": sampling.min_p is not None and sampling.min_p > 0,
    }
    for name, in_force in filters.items():
        if in_force and not kept_sets:
            yield f"{_OTHER}: {name} without kept sets"
    if call.logprobs_mode == "processed":
        return
    shifts = {
        "repetition_penalty": sampling.repetition_penalty not in (None, 1.0),
        "presence_penalty": sampling.presence_penalty not in (None, 0.0),
        "frequency_penalty": sampling.frequency_penalty not in (None, 0.0),
        "logit_bias": bool(sampling.logit_bias),
        "temperature": call.logprobs_mode == "raw" and sampling.temperature not in (None, 0.0, 1.0),
    }
    for name, in_force in shifts.items():
        if in_force:
            yield f"{_OTHER}: {name} is not in {call.logprobs_mode} log-probabilities"
    if sampling.structured_output is not None:
        own = "the model's own" if call.logprobs_mode == "raw" else call.logprobs_mode
        yield f"the recorded log-probabilities are {own}, without the grammar; {_OTHER} than was sampled from"


class _Group(msgspec.Struct):
    rollouts: int
    reward: float | None
    differs: bool


class FileSignal:
    """E104, W802 and W803: what only the whole file shows. Keeps a few bytes a rollout."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()
        self._groups: dict[str, _Group] = {}
        self._modes: set[str] = set()

    def add(self, rollout: Rollout) -> Iterator[Fault]:
        """E104, at the second rollout with an id."""
        key = (rollout.rollout_id, rollout.attempt)
        if key in self._seen:
            yield Fault("E104", f"second rollout with this id (attempt {rollout.attempt})")
        self._seen.add(key)
        self._modes |= {call.logprobs_mode for _, call in trained_calls(rollout)}
        if rollout.group_id is not None:
            group = self._groups.setdefault(rollout.group_id, _Group(0, rollout.reward, differs=False))
            group.rollouts += 1
            group.differs |= group.reward != rollout.reward

    def close(self) -> Iterator[Violation]:
        """W802 and W803, when every rollout was added."""
        for name, group in self._groups.items():
            if not group.differs:
                said = "one rollout" if group.rollouts == 1 else f"all {group.rollouts} rewards equal"
                yield Violation("W802", "-", None, None, f"no learning signal in group {name}: {said}")
        if len(self._modes) > 1:
            told = ", ".join(f"{mode} ({_MODES[mode]})" if mode in _MODES else mode for mode in sorted(self._modes))
            yield Violation("W803", "-", None, None, f"mixed log-probability modes: {told}")
