"""TRL 1.16.0, `GRPOTrainer` with a `rollout_func`: one row a rollout, cut into prompt and completion.

Source: trl/trainer/grpo_trainer.py of the 1.16.0 wheel, run on the CPU.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Reward, Rows
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row, cut
from turnstile.trajectory.format import Fields


class Trl:
    """Each sample is one row of the dict of lists that a `rollout_func` returns."""

    name = "trl"
    facts = Facts(trainer="TRL's GRPOTrainer", rows=Rows.ONE, reward=Reward.MAY_BE_UNKNOWN)

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`env_mask` is what keeps tool output from being trained; any other key reaches the reward functions."""
        (row,) = rows
        pieces = cut(row, options)
        return {
            "prompt_ids": pieces.prompt_P,
            "completion_ids": pieces.response_R,
            "logprobs": pieces.logprobs_R,
            "env_mask": pieces.mask_R,
            "turnstile_reward": row.reward,
        }
