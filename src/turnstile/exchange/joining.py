"""Several requests to an engine as the one completion that they are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.conversation import Usage
from turnstile.generation import Delta, Finish, Generation, LogprobsMode, Numbers
from turnstile.journal import PolicyRange
from turnstile.tokens import LogprobRun, join

_FLOAT32_BYTES = 4


class Part(msgspec.Struct, frozen=True):
    """What one request to an engine sampled."""

    generation: Generation
    tiles: tuple[PolicyRange, ...]
    """Which policy versions sampled which of its ids."""


def joined(parts: Sequence[Part]) -> Part:
    """All parts as one; a single part as it is, so that nothing changes where nothing was given up.

    Shapes: [S1], [S2], ... -> [S1 + S2 + ...]. What is said of the prompt is the first part's, how it ended the last's;
    an abort that is last ended it by its length, since it would have been taken up again otherwise.

    Raises: ValueError without parts.
    """
    if not parts:
        raise ValueError("no part to join")
    generations = [part.generation for part in parts]
    first, last = generations[0], generations[-1]
    finish = Finish.LENGTH if last.finish is Finish.ABORT else last.finish
    if len(parts) == 1:
        return Part(msgspec.structs.replace(first, finish=finish), parts[0].tiles)
    modes = {(each.logprobs_mode, each.logprobs_temperature) for each in generations if each.ids_S}
    mode, temperature = modes.pop() if len(modes) == 1 else (LogprobsMode.UNKNOWN, None)
    whole = msgspec.structs.replace(
        first,
        ids_S=join(each.ids_S for each in generations),
        logprobs_S=_logprobs(generations),
        finish=finish,
        engine_finish_reason=last.engine_finish_reason,
        usage=Usage(
            prompt_tokens=first.usage.prompt_tokens,
            completion_tokens=sum(each.usage.completion_tokens for each in generations),
            cached_tokens=first.usage.cached_tokens,
        ),
        logprobs_mode=mode,
        logprobs_temperature=temperature,
        stop_string=last.stop_string,
        engine_request_id=last.engine_request_id,
        notes=tuple(note for each in generations for note in each.notes),
        policy_spans=(),
        said=last.said,
    )
    return Part(whole, _tiles(parts))


def cut(part: Part, length_S: int, stop_string: str) -> Part:
    """A part that ends with a stop string whose last id is at `length_S` - 1; what was sampled behind it is gone."""
    generation = part.generation
    dropped = len(generation.ids_S) - length_S
    usage = generation.usage
    return Part(
        msgspec.structs.replace(
            generation,
            ids_S=generation.ids_S.slice(0, length_S),
            logprobs_S=None if generation.logprobs_S is None else generation.logprobs_S.slice(0, length_S),
            finish=Finish.STOP,
            stop_string=stop_string,
            usage=msgspec.structs.replace(usage, completion_tokens=usage.completion_tokens - dropped),
        ),
        tuple(
            msgspec.structs.replace(tile, end_S=min(tile.end_S, length_S))
            for tile in part.tiles
            if tile.start_S < length_S
        ),
    )


def delta_of(generation: Generation, start_S: int) -> Delta:
    """The ids of a generation from one on, as if they came only now."""
    ids_S, logprobs_S = generation.ids_S, generation.logprobs_S
    known = logprobs_S is not None and len(logprobs_S) == len(ids_S)
    numbers = (
        Numbers(logprobs_S.slice(start_S, len(ids_S)), generation.logprobs_mode, generation.logprobs_temperature)
        if known and logprobs_S is not None
        else None
    )
    return Delta(ids_S.slice(start_S), numbers=numbers)


def shortened(delta: Delta, length: int) -> Delta:
    """The first ids of a delta."""
    numbers = delta.numbers
    if numbers is not None:
        numbers = msgspec.structs.replace(numbers, logprobs_S=numbers.logprobs_S.slice(0, length))
    return msgspec.structs.replace(
        delta, ids_S=delta.ids_S.slice(0, length), logprobs=delta.logprobs[:length], numbers=numbers
    )


def _logprobs(generations: Sequence[Generation]) -> LogprobRun | None:
    """One entry for each id; unknown where a request said none, None if all of them did."""
    if all(each.logprobs_S is None for each in generations):
        return None
    run = LogprobRun()
    for each in generations:
        length = len(each.ids_S)
        unknown = LogprobRun(bytes(_FLOAT32_BYTES * length), tuple(range(length)))
        run += unknown if each.logprobs_S is None else each.logprobs_S
    return run


def _tiles(parts: Sequence[Part]) -> tuple[PolicyRange, ...]:
    tiles: list[PolicyRange] = []
    start_S = 0
    for part in parts:
        for tile in part.tiles:
            moved = msgspec.structs.replace(tile, start_S=tile.start_S + start_S, end_S=tile.end_S + start_S)
            if tiles and _versions(tiles[-1]) == _versions(moved):
                tiles[-1] = msgspec.structs.replace(tiles[-1], end_S=moved.end_S)
            else:
                tiles.append(moved)
        start_S += len(part.generation.ids_S)
    return tuple(tiles)


def _versions(tile: PolicyRange) -> tuple[int | None, int | None, str]:
    return tile.lowest, tile.highest, tile.label
