"""TRL's AsyncGRPOTrainer."""

from __future__ import annotations


def test_staleness_is_judged_by_the_oldest_weights_that_drew_a_trained_token(group, samples_of) -> None:
    group[1]["sequences"][1]["segments"][-1] |= {"policy_version_min": 5, "policy_version_max": 9}
    assert [each["model_version"] for each in samples_of("trl_async")] == [7, 7, 7, 5]


def test_unknown_weights_are_refused(group, code_of) -> None:
    for name in ("policy_version_min", "policy_version_max"):
        group[1]["sequences"][1]["segments"][-1][name] = None
    assert code_of("trl_async") == "policy_version_unknown"


def test_recorded_advantages_are_taken_if_they_are_one(group, samples_of, code_of) -> None:
    for rollout in group:
        for sequence in rollout["sequences"]:
            sequence["advantages"] = [0.25] * len(sequence["logprobs"])
    assert [each["advantage"] for each in samples_of("trl_async", advantage="recorded")] == [0.25] * 4
    # The number of a masked token is nobody's.
    group[1]["sequences"][1]["advantages"][1] = 9.0
    assert code_of("trl_async", advantage="recorded") == ""
    group[1]["sequences"][1]["advantages"][3] = 0.5
    assert code_of("trl_async", advantage="recorded") == "advantage_per_token"


def test_a_prefilled_prompt_is_no_completion(samples_of) -> None:
    rewritten = samples_of("trl_async")[3]
    assert [each["content"] for each in rewritten["prompt"]] == ["hey", "ho", "go"]
    assert [each["content"] for each in rewritten["completion"]] == ["gone"]
