"""Which log-probabilities a server answers, worked out from numbers of the same places.

Each place has numbers sampled at a low temperature T and numbers of the same ids in a prompt, which are the model's
own. Raw numbers are equal to those; processed ones are apart from one another by 1 / T as much. Only differences
count, so the sums over the vocabulary, which nobody has, drop out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from turnstile.generation import LogprobsMode

PROBE_TEMPERATURE = 0.3
Places: TypeAlias = Sequence[tuple[dict[int, float], dict[int, float]]]
"""A place's numbers by id: as sampled, and as the prompt's."""
_SLACK = 1e-3
_LEAST = 0.2
"""Differences that add up to less say nothing."""
_NEAR = 0.2
"""How far a ratio may be off: half-precision engines do not compute a place twice alike."""


def is_logits(places: Places) -> bool:
    """Whether numbers cannot be log-probabilities: above 0, or together more than all there is."""
    rows = [row for place in places for row in place]
    return any(
        any(value > _SLACK for value in row.values()) or math.fsum(map(math.exp, row.values())) > 1 + _SLACK
        for row in rows
    )


def measured(places: Places) -> LogprobsMode:
    """`raw`, `processed`, or `unknown` where the places do not tell."""
    sampled = own = 0.0
    for at_temperature, raw in places:
        shared = sorted(at_temperature.keys() & raw.keys(), key=lambda token_id: raw[token_id])
        if shared:
            sampled += at_temperature[shared[-1]] - at_temperature[shared[0]]
            own += raw[shared[-1]] - raw[shared[0]]
    if own < _LEAST:
        return LogprobsMode.UNKNOWN
    ratio = sampled / own
    if abs(ratio - 1) < _NEAR:
        return LogprobsMode.RAW
    if abs(ratio * PROBE_TEMPERATURE - 1) < _NEAR:
        return LogprobsMode.PROCESSED
    return LogprobsMode.UNKNOWN
