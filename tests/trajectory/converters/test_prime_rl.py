"""prime-rl."""

from __future__ import annotations


def test_weights_stand_in_their_own_stream_and_only_where_some_is_not_1(group, samples_of) -> None:
    assert all("rl_weights" not in each for each in samples_of("prime_rl"))
    group[0]["sequences"][1]["segments"][-1]["weight"] = 0.5
    group[0]["sequences"][1]["token_weights"] = [1.0, 1.0, 1.0, 1.0, 1.0, 0.5]
    weighed = samples_of("prime_rl")[1]
    assert weighed["rl_weights"] == [0.0] * 19 + [0.5, 0.25]
    assert weighed["advantages"] == [0.0] * 19 + [0.5, 0.5]


def test_fields_stand_in_the_order_of_the_struct(samples_of) -> None:
    order = ["token_ids", "mask", "logprobs", "temperatures", "env_name", "rl_weights", "advantages"]
    (first, *_) = samples_of("prime_rl", env_name="calc")
    assert sorted(first, key=order.index)[:5] == list(first)[:5]
    assert first["env_name"] == "calc"


def test_recorded_advantages_are_taken_token_by_token(group, samples_of) -> None:
    for rollout in group:
        for sequence in rollout["sequences"]:
            sequence["advantages"] = [float(at) for at in range(len(sequence["logprobs"]))]
    assert samples_of("prime_rl", advantage="recorded")[3]["advantages"] == [0.0] * 15 + [0.0, 0.0, 2.0, 3.0]
