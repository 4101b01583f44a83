"""miles at 31f1ca961a: a `Sample` for each sequence, as `Sample.from_dict` takes it.

Source: miles/utils/types.py::Sample, miles/ray/rollout/train_data_conversion.py, which normalizes rewards over
rollouts, so several samples of one do not move the baseline.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Lost, Reward, Rows
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.converters.slime import sample_fields
from turnstile.trajectory.format import Fields


class Miles:
    """Each sample holds the fields of a `Sample`."""

    name = "miles"
    facts = Facts(
        trainer="miles",
        rows=Rows.TOGETHER,
        reward=Reward.NEEDED,
        lost=frozenset({Lost.REWARD_PARTS, Lost.SIDE_ARRAYS}),
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """The same fields as slime's."""
        (row,) = rows
        return sample_fields(row, options)
