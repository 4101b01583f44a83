"""AReaL 1.0.4: a dict of tensors [1, T] for each sequence.

Source: areal/experimental/openai/types.py::InteractionWithTokenLogpReward.to_tensor_dict of the 1.0.4 wheel. -1 is its
version of a token that was not sampled, or of unknown weights.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Lost, Reward, Rows
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.format import Fields


class AReal:
    """Each sample holds nested lists in the shapes of its tensors."""

    name = "areal"
    facts = Facts(
        trainer="AReaL",
        rows=Rows.COUNTED,
        reward=Reward.NEEDED,
        lost=frozenset({Lost.REWARD_PARTS, Lost.SIDE_ARRAYS}),
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`versions` has the newest version that may have drawn a token."""
        del options
        (row,) = rows
        return {
            "input_ids": [row.ids_T],
            "loss_mask": [row.mask_T],
            "logprobs": [row.logprobs_T],
            "versions": [row.sequence.versions_T().tolist()],
            "attention_mask": [[True] * len(row.sequence.token_ids)],
            "rewards": [row.reward],
        }
