"""prime-rl at 559b44772e: a `TrainingSample` for each sequence.

Source: src/prime_rl/transports/rollouts/types.py and trainer/batch.py::prepare_sample. All streams have length T and
are unshifted; the temperature stands beside each token. The struct travels as an array, so fields are given by name.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Reward, Rows, Temperature, Weights
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.format import Fields

_OF_CONTEXT = 1.0
"""The trainer never uses the temperature of a masked token; it divides by it, so it is not 0."""


class PrimeRl:
    """Each sample holds the arguments of a `TrainingSample`."""

    name = "prime_rl"
    facts = Facts(
        trainer="prime-rl",
        rows=Rows.TOGETHER,
        reward=Reward.TURNED_INTO_ADVANTAGES,
        weights=Weights.CARRIED,
        temperature=Temperature.EACH_TOKEN,
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`rl_weights` stands only where some weight is not 1, as the trainer means it."""
        (row,) = rows
        mask_T, weights_T = row.mask_T, row.weights_T
        sample: Fields = {
            "token_ids": row.ids_T,
            "mask": [counted == 1 for counted in mask_T],
            "logprobs": row.logprobs_T,
            "temperatures": _temperatures_T(row),
            "env_name": options.env_name,
            "advantages": row.advantages_T,
        }
        if weights_T != [float(counted) for counted in mask_T]:
            sample["rl_weights"] = weights_T
        return sample


def _temperatures_T(row: Row) -> list[float]:
    temperatures_T = [_OF_CONTEXT] * len(row.sequence.token_ids)
    for segment, _ in row.sequence.sampled_segments():
        if segment.trainable and segment.call is not None:
            sampling = row.rollout.samplings[row.rollout.calls[segment.call].sampling]
            temperature = sampling.temperature or _OF_CONTEXT
            temperatures_T[segment.start : segment.end] = [temperature] * (segment.end - segment.start)
    return temperatures_T
