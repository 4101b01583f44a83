"""miles."""

from __future__ import annotations


def test_lengths_are_what_its_own_validate_asks_for(samples_of) -> None:
    for sample in samples_of("miles"):
        assert len(sample["loss_mask"]) == len(sample["rollout_log_probs"]) == sample["response_length"]
        assert 0 <= sample["response_length"] <= len(sample["tokens"])


def test_rows_of_a_rollout_share_its_number_and_groups_theirs(group, samples_of) -> None:
    other = [each | {"group_id": "h", "rollout_id": each["rollout_id"] + "b"} for each in group]
    samples = samples_of("miles", [*group, *other])
    assert [each["rollout_id"] for each in samples] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [each["group_index"] for each in samples] == [0] * 4 + [1] * 4
    assert [each["index"] for each in samples] == list(range(8))
