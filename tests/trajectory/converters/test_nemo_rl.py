"""NeMo-RL."""

from __future__ import annotations


def test_a_sampled_token_that_is_not_trained_is_a_users(samples_of) -> None:
    log = samples_of("nemo_rl")[3]["message_log"]
    assert [(each["role"], each["token_ids"]) for each in log[1:]] == [
        ("assistant", [60]),
        ("user", [61]),
        ("assistant", [62, 2]),
    ]
    assert all(("generation_logprobs" in each) == (each["role"] == "assistant") for each in log)


def test_the_messages_are_the_whole_sequence(group, samples_of) -> None:
    for sample, sequence in zip(samples_of("nemo_rl"), group[0]["sequences"] + group[1]["sequences"], strict=True):
        ids = [token for message in sample["message_log"] for token in message["token_ids"]]
        assert ids == sequence["token_ids"]
        assert sample["length"] == len(ids)
