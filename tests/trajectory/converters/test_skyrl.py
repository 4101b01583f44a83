"""SkyRL."""

from __future__ import annotations


def test_the_reward_is_on_the_last_token_of_the_last_step_and_nowhere_else(samples_of) -> None:
    first, second = samples_of("skyrl")
    assert [sum(row) for row in first["rewards"]] == [0.0, 1.0]
    assert first["rewards"][1][-1] == 1.0
    assert first["is_last_step"] == second["is_last_step"] == [False, True]


def test_rollouts_of_a_group_are_its_repetitions(group, samples_of) -> None:
    group[1]["group_id"] = None
    first, second = samples_of("skyrl")
    assert first["trajectory_ids"][0] == {"instance_id": "g-17", "repetition_id": 0}
    assert second["trajectory_ids"][0] == {"instance_id": "ro-0002", "repetition_id": 0}
