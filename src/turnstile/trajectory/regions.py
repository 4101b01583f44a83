"""A sequence as a fixed prompt region and a fixed response region, for trainers whose batches are two rectangles.

Nothing is ever cut. What of a prompt does not fit into its region stands at the head of the response region with
mask 0, so both regions in a row are the sequence's own ids: offsets of media and side arrays hold as they are.
"""

from __future__ import annotations

from array import array

import msgspec

from turnstile.errors import CallerError
from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.check_sequences import check_lengths, check_prompt_length, check_tiling
from turnstile.trajectory.shapes import Sequence


class Room(msgspec.Struct, frozen=True):
    """How many ids a trainer's row holds."""

    prompt: int
    """Columns of the prompt region."""
    total: int
    """Columns of both regions together."""


class Regions(msgspec.Struct, frozen=True):
    """The two regions of one sequence, without padding: P prompt ids, then R ids of which a loss may count some."""

    prompt_P: IdRun
    """At most `Room.prompt` ids; a trainer pads them on the left."""
    response_R: IdRun
    mask_R: array[int]
    """int8[R]: 1 for tokens that a loss may count, else 0."""
    logprobs_R: LogprobRun
    """What was recorded for each sampled token; unknown for every other one, never 0.0."""


def into_regions(sequence: Sequence, room: Room) -> Regions:
    """Lay a sequence out in two regions; every id is in one of them, in order.

    Raises: as `prompt_columns`. A prompt that is shorter than its region takes the whole of it.
    """
    prompt = prompt_columns(sequence, room)
    return Regions(
        prompt_P=sequence.token_ids[:prompt],
        response_R=sequence.token_ids[prompt:],
        mask_R=sequence.loss_mask_T()[prompt:],
        logprobs_R=_spread(sequence, prompt),
    )


def prompt_columns(sequence: Sequence, room: Room) -> int:
    """How many ids of a sequence stand in the prompt region; all others follow in the response region.

    Raises: CallerError `row_unaligned` if its ids, segments and log-probabilities are not of one length, and
    `row_too_long` if it does not fit.
    """
    _check_aligned(sequence)
    length, prompt = len(sequence.token_ids), min(sequence.prompt_length, room.prompt)
    need = max(sequence.prompt_length, room.prompt) + length - sequence.prompt_length
    if need > room.total:
        raise CallerError(
            f"Sequence {sequence.sequence_id} does not fit into the trainer's row: need={need} have={room.total}",
            "Give the trainer's rows more room, or leave this sequence out; nothing is ever cut off",
            code="row_too_long",
        )
    return prompt


def _check_aligned(sequence: Sequence) -> None:
    # The checks of lengths rely on the one of the tiling.
    faults = [*check_tiling(sequence, 0)] or [*check_prompt_length(sequence, 0), *check_lengths(sequence, 0)]
    if faults:
        raise CallerError(
            f"Sequence {sequence.sequence_id} contradicts itself: {faults[0].code} {faults[0].message}",
            "Leave it out; `turnstile validate FILE` shows every sequence that is at fault",
            code="row_unaligned",
        )


def _spread(sequence: Sequence, start: int) -> LogprobRun:
    """One entry for each id from `start` on, which is no later than the first sampled one."""
    values: list[float | None] = [None] * (len(sequence.token_ids) - start)
    known = sequence.logprobs.tolist()
    for segment, before_S in sequence.sampled_segments():
        values[segment.start - start : segment.end - start] = known[before_S : before_S + segment.end - segment.start]
    return LogprobRun.of(values)
