"""OpenRLHF."""

from __future__ import annotations


def test_an_answer_that_met_its_limit_is_truncated(group, samples_of) -> None:
    group[0]["calls"][2]["finish"] = "length"
    assert [each["truncated"] for each in samples_of("openrlhf")] == [False, True, False, False]


def test_neighbours_of_two_policies_are_one_range(group, samples_of) -> None:
    segments = group[1]["sequences"][0]["segments"]
    last = segments.pop()
    segments += [last | {"end": 7}, last | {"start": 7, "policy_version_min": 8, "policy_version_max": 8}]
    assert samples_of("openrlhf")[2]["action_ranges"] == [[5, 9]]
