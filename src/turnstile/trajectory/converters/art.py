"""ART 0.5.23: a `Trajectory` for each rollout, whose choices carry their ids as vLLM's do.

Source: art/trajectories/__init__.py, art/preprocessing/vllm_tokens.py and tokenize.py::assemble_vllm_training_sequences
of the 0.5.23 wheel. Each choice is trained whole and has to extend what stands before it, or a new sequence begins. So
each run of trained tokens is a choice whose prompt is everything in front of it; a masked answer is a plain message.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Lost, Reward, Rows, Temperature, Unit
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row
from turnstile.trajectory.converters.turns import Turn, trained_runs, turns_of
from turnstile.trajectory.format import Fields
from turnstile.trajectory.shapes import JsonObject


class Art:
    """Each sample holds a trajectory's arguments; a dict with `finish_reason` becomes a `Choice` there."""

    name = "art"
    facts = Facts(
        trainer="ART",
        unit=Unit.ROLLOUT,
        rows=Rows.TOGETHER,
        reward=Reward.NEEDED,
        temperature=Temperature.UNKNOWN,
        lost=frozenset({Lost.SIDE_ARRAYS}),
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """The first sequence stands in the trajectory itself, others in `additional_histories`."""
        del options
        rollout = rows[0].rollout
        first, *others = [_history(row) for row in rows]
        ranges = [row.policy_range for row in rows]
        known = [each for each in ranges if each is not None]
        named = {"group_id": rollout.group_id, "rollout_id": rollout.rollout_id, "task_id": rollout.task_id}
        return {
            **first,
            "additional_histories": others,
            "reward": rollout.reward,
            "initial_policy_version": min((low for low, _ in known), default=None),
            "final_policy_version": max((high for _, high in known), default=None),
            "metrics": {name: value for name, value in rollout.rewards.items() if value is not None},
            "metadata": {name: value for name, value in named.items() if value is not None},
        }


def _history(row: Row) -> Fields:
    ids, logprobs = row.ids_T, row.logprobs_T
    said: list[JsonObject] = []
    for turn in turns_of(row.rollout, row.sequence):
        said += turn.context
        runs = trained_runs(turn)
        if not runs:
            said.append(turn.message or {"role": "assistant", "content": ""})
        for start, end in runs:
            # A completion in several runs has its message on the last one.
            message = turn.message if (start, end) == runs[-1] else None
            said.append(
                {
                    "index": 0,
                    "finish_reason": _finish_reason(row, turn, message),
                    "message": _message(message),
                    "logprobs": {"content": _content(ids[start:end], logprobs[start:end]), "refusal": None},
                    "prompt_token_ids": ids[:start],
                    "token_ids": ids[start:end],
                }
            )
    tools = row.rollout.heads[row.sequence.head].tools
    return {"messages_and_choices": said, "tools": None if tools is None else list(row.rollout.tools[tools])}


def _message(message: JsonObject | None) -> Fields:
    return {"role": "assistant", "content": "", "refusal": None} | (message or {})


def _finish_reason(row: Row, turn: Turn, message: JsonObject | None) -> str:
    if row.rollout.calls[turn.call].finish == "length":
        return "length"
    return "tool_calls" if message and message.get("tool_calls") else "stop"


def _content(ids: list[int], logprobs: list[float]) -> list[Fields]:
    return [
        {"token": f"token_id:{token}", "bytes": None, "logprob": logprob, "top_logprobs": []}
        for token, logprob in zip(ids, logprobs, strict=True)
    ]
