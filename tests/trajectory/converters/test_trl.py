"""TRL's GRPOTrainer."""

from __future__ import annotations


def test_tool_output_is_kept_out_of_the_loss_by_the_mask(samples_of) -> None:
    (first, _) = samples_of("trl", one_sequence="longest")
    assert first["env_mask"] == [1] * 4 + [0] * 8 + [1] * 3
    assert len(first["completion_ids"]) == len(first["logprobs"]) == len(first["env_mask"])


def test_an_unscored_rollout_has_no_reward(group, samples_of) -> None:
    group[0]["reward"] = None
    assert [each["turnstile_reward"] for each in samples_of("trl", one_sequence="last")] == [None, 0.0]
