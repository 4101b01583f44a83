"""slime at 624b824a89: a `Sample` for each sequence, as `Sample.from_dict` takes it.

Source: slime/utils/types.py::Sample, slime/ray/rollout.py::_convert_samples_to_train_data. Samples of one rollout
share its `rollout_id`, over which the loss averages; the reward baseline is over samples.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Lost, Reward, Rows
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row, cut
from turnstile.trajectory.format import Fields


class Slime:
    """Each sample holds the fields of a `Sample`."""

    name = "slime"
    facts = Facts(
        trainer="slime",
        rows=Rows.COUNTED,
        reward=Reward.NEEDED,
        lost=frozenset({Lost.REWARD_PARTS, Lost.SIDE_ARRAYS}),
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`weight_versions` has the newest version of each trained segment, as text."""
        (row,) = rows
        return sample_fields(row, options)


def sample_fields(row: Row, options: Options) -> Fields:
    """The fields that slime's and miles' `Sample` have in common."""
    pieces = cut(row, options)
    return {
        "group_index": row.place.group_number,
        "index": row.place.number,
        "rollout_id": row.place.rollout_number,
        "tokens": pieces.prompt_P + pieces.response_R,
        "response_length": len(pieces.response_R),
        "reward": row.reward,
        "loss_mask": pieces.mask_R,
        "weight_versions": [
            str(segment.policy_version_max)
            for segment, _ in row.sequence.sampled_segments()
            if segment.trainable and segment.policy_version_max is not None
        ],
        "rollout_log_probs": pieces.logprobs_R,
        "remove_sample": False,
        "status": row.rollout.status,
        "metadata": {"turnstile_sequence_id": row.sequence.sequence_id},
    }
