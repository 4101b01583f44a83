"""Whether every number of a rollout is finite: the format has no NaN and no infinity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import cast

import msgspec

from turnstile.errors import CallerError
from turnstile.tokens import LogprobRun
from turnstile.trajectory.packed import all_finite
from turnstile.trajectory.shapes import Float32Run, JsonObject, Rollout


def refuse_non_finite(rollout: Rollout) -> None:
    """Make sure that every number can be written. Raises: CallerError if one is NaN or infinite."""
    for where in (*non_finite(rollout), *_non_finite_runs(rollout)):
        raise CallerError(
            f"{where} of rollout {rollout.rollout_id} is not finite",
            "Leave an unknown number out (null); the format has no NaN and no infinity",
            code="E106",
        )


def non_finite(rollout: Rollout) -> Iterator[str]:
    """The names of the fields outside runs of numbers that hold a NaN or an infinity."""
    settings = [msgspec.structs.astuple(sampling) for sampling in rollout.samplings]
    if not _is_finite([rollout.reward, rollout.rewards, rollout.metrics, rollout.extra, settings]):
        for name in ("reward", "rewards", "metrics", "extra"):
            yield from _bad_numbers(name, getattr(rollout, name))
        for at, sampling in enumerate(rollout.samplings):
            yield from _bad_numbers(f"samplings[{at}]", msgspec.structs.asdict(sampling))
    for at, call in enumerate(rollout.calls):
        if call.logprobs_temperature is not None and not math.isfinite(call.logprobs_temperature):
            yield f"calls[{at}].logprobs_temperature"
    for at, sequence in enumerate(rollout.sequences):
        yield from _bad_numbers(f"sequences[{at}].reward", sequence.reward)
        if not all(map(math.isfinite, [part.weight for part in sequence.segments])):
            yield f"sequences[{at}].segments.weight"


def _non_finite_runs(rollout: Rollout) -> Iterator[str]:
    for at, sequence in enumerate(rollout.sequences):
        for name in ("logprobs", "token_weights", "advantages"):
            run: LogprobRun | Float32Run | None = getattr(sequence, name)
            if run is not None and not all_finite(run.packed):
                yield f"sequences[{at}].{name}"


def _is_finite(value: object) -> bool:
    """Whether no number in a value is NaN or infinite."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, float):
            if not math.isfinite(found):
                return False
        elif isinstance(found, dict):
            waiting.extend(cast(JsonObject, found).values())
        elif isinstance(found, list | tuple):
            waiting.extend(cast(Iterable[object], found))
    return True


def _bad_numbers(where: str, value: object) -> Iterator[str]:
    # A loop, because a file may nest its `extra` deeper than Python's own stack goes.
    waiting: list[tuple[str, object]] = [(where, value)]
    while waiting:
        place, found = waiting.pop()
        if isinstance(found, float):
            if not math.isfinite(found):
                yield place
        elif isinstance(found, dict):
            waiting += [(f"{place}.{key}", inner) for key, inner in cast(JsonObject, found).items()]
        elif isinstance(found, list | tuple):
            waiting += [(f"{place}[{at}]", inner) for at, inner in enumerate(cast(Iterable[object], found))]
