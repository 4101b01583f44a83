"""slime."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("status", ["completed", "truncated", "failed", "aborted"])
def test_a_status_is_one_of_its_words(status: str, group, samples_of) -> None:
    group[0]["status"] = status
    assert samples_of("slime")[0]["status"] == status


def test_unknown_weights_have_no_version(group, samples_of) -> None:
    for name in ("policy_version_min", "policy_version_max"):
        group[1]["sequences"][1]["segments"][-1][name] = None
    assert samples_of("slime")[3]["weight_versions"] == ["7"]


def test_the_whole_sequence_stays_where_the_prompt_region_is_short(samples_of) -> None:
    second = samples_of("slime", prompt_length=4)[3]
    assert second["response_length"] == 15 == len(second["loss_mask"])
    assert len(second["tokens"]) == 19


def test_a_version_is_the_newest_that_may_have_drawn_a_trained_segment(group, samples_of) -> None:
    group[1]["sequences"][1]["segments"][-1] |= {"policy_version_min": 8, "policy_version_max": 11}
    assert samples_of("slime")[3]["weight_versions"] == ["7", "11"]
