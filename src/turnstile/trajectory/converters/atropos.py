"""Atropos 0.4.0: a `ScoredDataGroup` for each group.

Source: atroposlib/envs/base.py::ScoredDataGroup and atroposlib/api/server.py::ScoredData of the 0.4.0 wheel. Its mask
has the token's id where a loss counts it and -100 elsewhere; an unsampled token's log-probability is 1.0.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Reward, Rows, Temperature, Unit, Weights
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.format import Fields

_MASKED = -100
_UNSAMPLED = 1.0


class Atropos:
    """Each sample is one group; a rollout with several sequences has an entry for each."""

    name = "atropos"
    facts = Facts(
        trainer="Atropos",
        unit=Unit.GROUP,
        rows=Rows.TOGETHER,
        reward=Reward.TURNED_INTO_ADVANTAGES,
        weights=Weights.CARRIED,
        temperature=Temperature.UNKNOWN,
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`advantages` are weighted; `scores` alone would count a rollout once for each of its sequences."""
        del options
        return {
            "tokens": [row.ids_T for row in rows],
            "masks": [_mask_T(row) for row in rows],
            "scores": [row.reward for row in rows],
            "advantages": [weighted_advantages_T(row) for row in rows],
            "inference_logprobs": [_logprobs_T(row) for row in rows],
            "messages": [[row.rollout.messages[number] for number in row.sequence.messages] for row in rows],
            "group_overrides": {"group_size": len(rows)},
        }


def weighted_advantages_T(row: Row) -> list[float]:
    """Advantage times weight of each token; 0.0 where masked."""
    return [a * b for a, b in zip(row.advantages_T, row.weights_T, strict=True)]


def _mask_T(row: Row) -> list[int]:
    return [token if counted else _MASKED for token, counted in zip(row.ids_T, row.mask_T, strict=True)]


def _logprobs_T(row: Row) -> list[float]:
    return [value if counted else _UNSAMPLED for value, counted in zip(row.logprobs_T, row.mask_T, strict=True)]
