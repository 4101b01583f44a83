"""Atropos."""

from __future__ import annotations


def test_the_mask_is_the_id_or_minus_100(samples_of) -> None:
    (whole,) = samples_of("atropos")
    for ids, mask, logprobs in zip(whole["tokens"], whole["masks"], whole["inference_logprobs"], strict=True):
        assert all(marked in (token, -100) for token, marked in zip(ids, mask, strict=True))
        assert [marked == -100 for marked in mask] == [number == 1.0 for number in logprobs]


def test_case_l1_advantages_are_of_rollouts_though_rows_are_counted(group, samples_of) -> None:
    first, second = group[0]["sequences"]
    group[0]["sequences"] = [first, second, second | {"sequence_id": "ro-0001/2"}]
    group[1]["sequences"] = group[1]["sequences"][:1]
    (whole,) = samples_of("atropos")
    assert whole["scores"] == [1.0, 1.0, 1.0, 0.0]
    assert [max(row, key=abs) for row in whole["advantages"]] == [0.5, 0.5, 0.5, -0.5]
    assert whole["group_overrides"] == {"group_size": 4}
