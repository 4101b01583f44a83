"""TRL 1.16.0, `AsyncGRPOTrainer` (experimental): whole sequences with a final advantage.

Source: trl/experimental/async_grpo/async_rollout_worker.py::RolloutSample of the 1.16.0 wheel. Ids, mask and
log-probabilities share position i; nothing is shifted before the packer.
"""

from __future__ import annotations

from turnstile.errors import CallerError
from turnstile.trajectory.converters.base import Facts, Lost, Reward, Rows
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.converters.turns import turns_of
from turnstile.trajectory.format import Fields


class TrlAsync:
    """Each sample holds the arguments of a `RolloutSample`; lists become numpy arrays of its types there."""

    name = "trl_async"
    facts = Facts(
        trainer="TRL's AsyncGRPOTrainer",
        rows=Rows.TOGETHER,
        reward=Reward.TURNED_INTO_ADVANTAGES,
        lost=frozenset({Lost.REWARD_PARTS, Lost.SIDE_ARRAYS}),
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`model_version` is the oldest that drew a trained token, by which the trainer drops what is stale.

        Raises: CallerError `policy_version_unknown`, `advantage_per_token`.
        """
        del options
        (row,) = rows
        versions = row.policy_range
        if versions is None:
            raise CallerError(
                f"Sequence {row.sequence.sequence_id} does not say which weights drew it; {self.facts.trainer} drops "
                "samples by that",
                "Announce the weights with `client.announce_policy(version)` or `POST /policy` before sampling",
                code="policy_version_unknown",
            )
        turns = turns_of(row.rollout, row.sequence)
        messages = [row.rollout.messages[number] for number in row.sequence.messages]
        prompt = len(turns[0].context)
        return {
            "prompt": messages[:prompt],
            "completion": messages[prompt:],
            "input_ids": row.ids_T,
            "completion_mask": row.mask_T,
            "old_log_probs": row.logprobs_T,
            "advantage": _one_advantage(row),
            "model_version": versions[0],
            "group_id": row.place.group_number,
            "metrics": {} if row.reward is None else {"reward": row.reward},
        }


def _one_advantage(row: Row) -> float:
    if row.advantage is not None:
        return row.advantage
    advantages = {value for value, counted in zip(row.advantages_T, row.mask_T, strict=True) if counted}
    if len(advantages) > 1:
        raise CallerError(
            f"Sequence {row.sequence.sequence_id} has recorded advantages that differ between its tokens; "
            "TRL's AsyncGRPOTrainer has one a sample",
            "Choose another `--advantage`, or a trainer that takes one a token (docs/train/README.md)",
            code="advantage_per_token",
        )
    return advantages.pop()
