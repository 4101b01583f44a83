"""What a user may choose about a trajectory: how tokens weigh, and which answers beside the turns are trained."""

from __future__ import annotations

import enum

import msgspec

from turnstile.trajectory.shapes import JsonObject, Sequence, SequenceSegment


class Weights(enum.StrEnum):
    """How much a trained token counts."""

    TOKEN = "token"
    """1 each, in the one sequence that trains it."""
    SPLIT = "split"
    """A token that k sequences hold under its own prefix is trained in each of them, with weight 1/k."""
    ROLLOUT = "rollout"
    """All weights of one rollout add up to 1."""
    SEQUENCE = "sequence"
    """The weights of each sequence add up to 1."""


class Compaction(enum.StrEnum):
    """What becomes of the summary that a harness asked for to shorten its history."""

    MASKED = "masked"
    """It is an auxiliary call."""
    TRAINED = "trained"
    """It is a turn of the agent, if a later call went on from it."""


class Unselected(enum.StrEnum):
    """What becomes of the choices of a call that were not taken up although another was."""

    DISCARDED = "discarded"
    """Nobody consumed them."""
    TRAINED = "trained"
    """Each is a turn of the agent."""


class Rules(msgspec.Struct, frozen=True):
    """The choices under which trajectories are made. A file says which were made, in `extra`."""

    weights: Weights = Weights.TOKEN
    compaction: Compaction = Compaction.MASKED
    unselected: Unselected = Unselected.DISCARDED

    def told(self) -> JsonObject:
        """The choices that are not the usual ones, by name."""
        usual = Rules()
        chosen = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: choice.value for name, choice in chosen.items() if choice is not getattr(usual, name)}


def weighted(sequences: tuple[Sequence, ...], weights: Weights) -> tuple[Sequence, ...]:
    """Sequences whose trained tokens weigh what `weights` says; `split` is left as it is, being no matter of sums."""
    match weights:
        case Weights.TOKEN | Weights.SPLIT:
            return sequences
        case Weights.SEQUENCE:
            return tuple(_evenly(sequence, _trained(sequence)) for sequence in sequences)
        case Weights.ROLLOUT:
            total = sum(map(_trained, sequences))
            return tuple(_evenly(sequence, total) for sequence in sequences)


def _trained(sequence: Sequence) -> int:
    return sum(segment.end - segment.start for segment in sequence.segments if segment.trainable)


def _evenly(sequence: Sequence, shares: int) -> Sequence:
    if not shares:
        return sequence
    weight = 1.0 / shares
    return msgspec.structs.replace(
        sequence, segments=tuple(_weighing(segment, weight) for segment in sequence.segments)
    )


def _weighing(segment: SequenceSegment, weight: float) -> SequenceSegment:
    return msgspec.structs.replace(segment, weight=weight) if segment.trainable else segment
