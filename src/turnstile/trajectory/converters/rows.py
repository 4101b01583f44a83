"""One sequence as a row: the dense arrays that every converter needs, derived once and in one place."""

from __future__ import annotations

import msgspec

from turnstile.errors import CallerError
from turnstile.trajectory.check_sequences import check_lengths, check_prompt_length, check_tiling
from turnstile.trajectory.check_side import check_media_runs
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.regions import Room, prompt_columns
from turnstile.trajectory.shapes import CallInfo, Rollout, Sequence

_NO_LIMIT = 2**31 - 1


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a row stands among all that are converted, for trainers that count instead of naming."""

    number: int
    """Of all rows, from 0."""
    rollout_number: int
    """Of its rollout among all, from 0."""
    group_number: int
    """Of its group among all, from 0; a rollout without a group is one by itself."""
    in_group: int
    """Of its rollout in the group, from 0."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A sequence with T ids, its numbers unshifted: entry i of every array is about token i."""

    rollout: Rollout
    sequence: Sequence
    row: int
    """Its number among the converted sequences of its rollout, from 0."""
    rows: int
    """How many those are."""
    place: Place
    advantage: float | None
    """Of its rollout; None = the trainer takes none, or each token has its own."""

    @property
    def ids_T(self) -> list[int]:
        """The token ids."""
        return self.sequence.token_ids.tolist()

    @property
    def mask_T(self) -> list[int]:
        """1 for tokens that a loss may count, else 0."""
        return self.sequence.loss_mask_T().tolist()

    @property
    def logprobs_T(self) -> list[float]:
        """The recorded natural logs, 0.0 where nothing was recorded."""
        return self.sequence.logprobs_T(0.0).tolist()

    @property
    def weights_T(self) -> list[float]:
        """Segment weight times token weight; 0.0 where masked."""
        return self.sequence.weights_T().tolist()

    @property
    def advantages_T(self) -> list[float]:
        """The advantage of each token, unweighted; 0.0 where masked.

        Raises: CallerError `advantage_missing` if there is neither one of the rollout nor recorded ones.
        """
        mask_T = self.mask_T
        if self.advantage is not None:
            return [self.advantage if counted else 0.0 for counted in mask_T]
        if self.sequence.advantages is None:
            raise CallerError(
                f"Sequence {self.sequence.sequence_id} has no recorded advantages",
                "Choose another `--advantage`; `recorded` is for files into which a program has put them",
                code="advantage_missing",
            )
        recorded = self.sequence.advantages.tolist()
        spread = [0.0] * len(mask_T)
        for segment, before_S in self.sequence.sampled_segments():
            if segment.trainable:
                spread[segment.start : segment.end] = recorded[before_S : before_S + segment.end - segment.start]
        return spread

    @property
    def reward(self) -> float | None:
        """The sequence's own reward if it has one, else its rollout's; None = unscored."""
        return self.rollout.reward if self.sequence.reward is None else self.sequence.reward

    @property
    def trained_calls(self) -> list[CallInfo]:
        """The calls of which some token is trained, in order."""
        numbers = {segment.call for segment, _ in self.sequence.sampled_segments() if segment.trainable}
        return [self.rollout.calls[number] for number in sorted(each for each in numbers if each is not None)]

    @property
    def trained_runs(self) -> list[tuple[int, int]]:
        """Token indices [start, end) of the runs that a loss may count, neighbours joined."""
        runs: list[tuple[int, int]] = []
        for segment, _ in self.sequence.sampled_segments():
            if segment.trainable:
                joins = bool(runs) and runs[-1][1] == segment.start
                start = runs.pop()[0] if joins else segment.start
                runs.append((start, segment.end))
        return runs

    @property
    def policy_range(self) -> tuple[int, int] | None:
        """The oldest and the newest policy version that may have drawn a trained token; None = unknown."""
        low: list[int] = []
        high: list[int] = []
        for segment, _ in self.sequence.sampled_segments():
            if segment.trainable:
                if segment.policy_version_min is None or segment.policy_version_max is None:
                    return None
                low.append(segment.policy_version_min)
                high.append(segment.policy_version_max)
        return (min(low), max(high)) if low else None


class Cut(msgspec.Struct, frozen=True):
    """A row in two pieces, P + R = T."""

    prompt_P: list[int]
    response_R: list[int]
    mask_R: list[int]
    logprobs_R: list[float]
    """0.0 where nothing was recorded."""


def cut(row: Row, options: Options) -> Cut:
    """A row cut where its first answer begins, or earlier where the trainer's prompt region ends.

    Raises: CallerError `row_too_long` if it does not fit; nothing is ever cut off.
    """
    room = Room(options.prompt_length or row.sequence.prompt_length, options.max_length or _NO_LIMIT)
    at = prompt_columns(row.sequence, room)
    ids_T = row.ids_T
    return Cut(ids_T[:at], ids_T[at:], row.mask_T[at:], row.logprobs_T[at:])


def fault_of(rollout: Rollout, sequence: Sequence) -> str:
    """What contradicts itself in a sequence, so that its arrays would not be about the same tokens; empty if nothing.

    Source: E201, E202, E203, E206, E301, E303, E601, E603 of docs/reference/validate-codes.md.
    """
    faults = [*check_tiling(sequence, 0)] or [
        *check_prompt_length(sequence, 0),
        *check_lengths(sequence, 0),
        *check_media_runs(sequence, 0),
    ]
    if faults:
        return f"{faults[0].code} {faults[0].message}"
    unknown = set(sequence.logprobs.unknown)
    for segment, before_S in sequence.sampled_segments():
        if segment.trainable and not unknown.isdisjoint(range(before_S, before_S + segment.end - segment.start)):
            return "E303 trainable token without log-probability"
    numbers = {segment.call for segment, _ in sequence.sampled_segments()}
    if any(number is None or not 0 <= number < len(rollout.calls) for number in numbers):
        return "E203 sampled segment without a call"
    return ""
