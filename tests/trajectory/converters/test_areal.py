"""AReaL."""

from __future__ import annotations


def test_a_version_is_the_newest_that_may_have_drawn_the_token(group, samples_of) -> None:
    group[1]["sequences"][1]["segments"][-1] |= {"policy_version_min": None, "policy_version_max": None}
    assert samples_of("areal")[3]["versions"] == [[-1] * 15 + [7, 8, -1, -1]]


def test_every_array_is_one_row(samples_of) -> None:
    for sample in samples_of("areal"):
        lengths = {name: len(rows[0]) for name, rows in sample.items() if name != "rewards"}
        assert len(set(lengths.values())) == 1
        assert all(len(rows) == 1 for rows in sample.values())
