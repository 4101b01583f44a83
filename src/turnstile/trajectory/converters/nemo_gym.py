"""NeMo-Gym at 07d6b0d07b, as NeMo-RL at 7ea279abfb reads it: one result for each sequence.

Source: nemo_rl/environments/nemo_gym.py::_postprocess_nemo_gym_to_nemo_rl_result: each output item with generated ids
is trained whole, and its prompt must extend all before. So each run of trained tokens is an item whose prompt is
everything in front of it, and a masked token is part of the next prompt.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Reward, Rows
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.converters.turns import Turn, text_of, turns_of
from turnstile.trajectory.format import Fields


class NemoGym:
    """Each sample is one result of a rollout through Gym."""

    name = "nemo_gym"
    facts = Facts(trainer="NeMo-Gym", rows=Rows.COUNTED, reward=Reward.NEEDED)

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """The texts are for its logs and its check of tool calls in text; ids come from the ids."""
        del options
        (row,) = rows
        turns = turns_of(row.rollout, row.sequence)
        return {
            "responses_create_params": {
                "input": [{"role": each["role"], "content": text_of(each)} for each in turns[0].context]
            },
            "response": {"output": [_item(row, turns, start, end) for start, end in row.trained_runs]},
            "reward": row.reward,
        }


def _item(row: Row, turns: tuple[Turn, ...], start: int, end: int) -> Fields:
    # A completion in several runs has its text on the last one, behind which it is whole.
    said = next((turn.message for turn in turns if turn.end == end and turn.message), None)
    text = text_of(said) if said else ""
    return {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
        "prompt_token_ids": row.ids_T[:start],
        "generation_token_ids": row.ids_T[start:end],
        "generation_log_probs": row.logprobs_T[start:end],
    }
