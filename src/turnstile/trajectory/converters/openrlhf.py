"""OpenRLHF at 3c3be6234e: the response dict of an agent executor, one for each sequence.

Source: openrlhf/utils/agent.py and trainer/ppo_utils/samples_generator.py::_process_response_into_experience, which
cuts every array at `max_len` without a word and drops position 0 of mask and log-probabilities itself.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Reward, Rows
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.converters.turns import text_of, turns_of
from turnstile.trajectory.format import Fields


class OpenRlhf:
    """Each sample is one response; `action_ranges` are the runs of trained tokens."""

    name = "openrlhf"
    facts = Facts(trainer="OpenRLHF", rows=Rows.COUNTED, reward=Reward.NEEDED)

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`prompt` and `label` are for its logs: the text before the first answer, and the task."""
        del options
        (row,) = rows
        turns = turns_of(row.rollout, row.sequence)
        finishes = [call.finish for call in row.trained_calls]
        return {
            "prompt": "\n".join(text_of(message) for message in turns[0].context),
            "label": row.rollout.task_id or "",
            "images": None,
            "mm_train_inputs": None,
            "observation_tokens": row.ids_T,
            "action_ranges": [[start, end] for start, end in row.trained_runs],
            "rollout_log_probs": row.logprobs_T,
            "reward": row.reward,
            "scores": row.reward,
            "truncated": "length" in finishes,
            "extra_logs": {},
        }
