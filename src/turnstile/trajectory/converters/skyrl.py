"""SkyRL 0.4.0: the rows of one rollout as a `GeneratorOutput`, in its step-wise mode.

Source: skyrl/train/generators/base.py and skyrl/train/utils/trainer_utils.py::validate_generator_output of the 0.4.0
wheel. Rows of one rollout stand together, carry one `TrajectoryID`, and the reward is on the last token of the last.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Reward, Rows, Unit
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row, cut
from turnstile.trajectory.format import Fields


class SkyRl:
    """Each sample holds lists; those of several samples, joined, are a batch."""

    name = "skyrl"
    facts = Facts(trainer="SkyRL", unit=Unit.ROLLOUT, rows=Rows.TOGETHER, reward=Reward.NEEDED)

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`trajectory_ids` has the arguments of one `TrajectoryID` a row."""
        cuts = [cut(row, options) for row in rows]
        lengths = [len(pieces.response_R) for pieces in cuts]
        rewards = [[0.0] * length for length in lengths]
        rewards[-1][-1] = rows[-1].reward or 0.0
        return {
            "prompt_token_ids": [pieces.prompt_P for pieces in cuts],
            "response_ids": [pieces.response_R for pieces in cuts],
            "rewards": rewards,
            "loss_masks": [pieces.mask_R for pieces in cuts],
            "stop_reasons": [row.rollout.calls[row.sequence.leaf_call].finish for row in rows],
            "rollout_logprobs": [pieces.logprobs_R for pieces in cuts],
            "trajectory_ids": [
                {
                    "instance_id": row.rollout.group_id or row.rollout.rollout_id,
                    "repetition_id": row.place.in_group,
                }
                for row in rows
            ],
            "is_last_step": [row is rows[-1] for row in rows],
        }
