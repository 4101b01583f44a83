"""NeMo-RL at 7ea279abfb: a `DatumSpec` with a `message_log` for each sequence.

Source: nemo_rl/algorithms/grpo.py::add_grpo_token_loss_masks_and_generation_logprobs: an assistant message with
`generation_logprobs` is trained, all else is not. So every masked token, sampled or not, goes into a user message.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Reward, Rows
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.format import Fields


class NemoRl:
    """Each sample is one datum; `token_ids` and `generation_logprobs` become tensors there."""

    name = "nemo_rl"
    facts = Facts(trainer="NeMo-RL", rows=Rows.COUNTED, reward=Reward.NEEDED)

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`total_reward` is the column of the batch that its baseline is computed from."""
        del options
        (row,) = rows
        return {
            "message_log": _message_log(row),
            "length": len(row.sequence.token_ids),
            "extra_env_info": {"turnstile_sequence_id": row.sequence.sequence_id},
            "loss_multiplier": 1.0,
            "idx": row.place.number,
            "total_reward": row.reward,
        }


def _message_log(row: Row) -> list[Fields]:
    ids, logprobs = row.ids_T, row.logprobs_T
    log: list[Fields] = []
    at = 0
    for start, end in row.trained_runs:
        log += _user(ids[at:start])
        log.append(
            {
                "role": "assistant",
                "content": "",
                "token_ids": ids[start:end],
                "generation_logprobs": logprobs[start:end],
            }
        )
        at = end
    return log + _user(ids[at:])


def _user(ids: list[int]) -> list[Fields]:
    return [{"role": "user", "content": "", "token_ids": ids}] if ids else []
