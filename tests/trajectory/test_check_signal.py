from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("code", "path", "value"),
    [
        ("W801", ("reward",), None),
        ("W804", ("samplings", 0, "top_p"), 0.9),
        ("W804", ("samplings", 0, "top_k"), 20),
        ("W804", ("samplings", 0, "min_p"), 0.1),
        ("W805", ("sequences", 0, "segments", 2, "policy_version_min"), 5),
    ],
)
def test_what_a_trainer_may_stumble_over_is_a_warning(damaged, codes_of, code, path, value):
    assert code in codes_of(damaged(*path, value=value))


def test_raw_numbers_at_another_temperature_are_a_warning(example, lines_of):
    example["samplings"][0]["temperature"] = 0.7
    for call in example["calls"]:
        call["logprobs_mode"] = "raw"
    assert lines_of(example) == [
        "W804 ro-0001 - 0 a trainer that recomputes gets another distribution:"
        " temperature is not in raw log-probabilities"
    ]


def test_a_grammar_is_told_as_what_the_numbers_leave_out(example, lines_of):
    example["samplings"][0]["structured_output"] = '{"type":"object"}'
    for call in example["calls"]:
        call["logprobs_mode"] = "raw"
    assert lines_of(example) == [
        "W804 ro-0001 - 0 the recorded log-probabilities are the model's own, without the grammar;"
        " a trainer that recomputes gets another distribution than was sampled from"
    ]


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("completed", "no reward was given"),
        ("running", "no reward was given; still running: POST /rollouts/ro-0001/finish"),
    ],
)
def test_a_rollout_without_a_reward_says_whether_it_can_still_get_one(example, lines_of, status, told):
    example |= {"status": status, "reward": None}
    if status == "running":
        example["finished_at"] = None
    assert lines_of(example) == [f"W801 ro-0001 - - {told}"]
