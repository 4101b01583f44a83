"""verl 0.9.1: the `AgentLoopOutput`s that an agent loop returns for one rollout.

Source: verl/experimental/agent_loop/agent_loop.py and verl/trainer/ppo/v1/agent_loop_tq.py of the 0.9.1 wheel. A list
of outputs goes to the v1 trainer, which gives the last one's reward to all and takes one a rollout for the baseline.
"""

from __future__ import annotations

from turnstile.trajectory.converters.base import Facts, Lost, Media, Reward, Rows, Unit
from turnstile.trajectory.converters.media import images_of
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Row, cut
from turnstile.trajectory.format import Fields


class Verl:
    """Each sample holds the outputs of one rollout, in order."""

    name = "verl"
    facts = Facts(
        trainer="verl",
        unit=Unit.ROLLOUT,
        rows=Rows.TOGETHER,
        reward=Reward.MAY_BE_UNKNOWN,
        media=Media.CARRIED,
        lost=frozenset({Lost.REWARD_PARTS, Lost.SIDE_ARRAYS}),
    )

    def sample(self, rows: tuple[Row, ...], options: Options) -> Fields:
        """`outputs`: the arguments of one `AgentLoopOutput` for each sequence."""
        return {"outputs": [_output(row, options) for row in rows]}


def _output(row: Row, options: Options) -> Fields:
    pieces = cut(row, options)
    output: Fields = {
        "prompt_ids": pieces.prompt_P,
        "response_ids": pieces.response_R,
        "response_mask": pieces.mask_R,
        "response_logprobs": pieces.logprobs_R,
        "reward_score": row.reward,
        "num_turns": len(row.sequence.messages),
        "metrics": {},
        "extra_fields": _extra_fields(row),
    }
    if row.sequence.media:
        output["multi_modal_data"] = {"images": images_of(row.sequence)}
        output["mm_processor_kwargs"] = row.rollout.heads[row.sequence.head].mm_processor_kwargs or {}
    return output


def _extra_fields(row: Row) -> Fields:
    # The v1 manager reads `reward_extra_info` of every list that carries a reward, and fails without it.
    fields: Fields = {"reward_extra_info": {}, "turnstile_sequence_id": row.sequence.sequence_id}
    versions = row.policy_range
    if versions is not None:
        fields["min_global_steps"], fields["max_global_steps"] = versions
    return fields
