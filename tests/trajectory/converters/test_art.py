"""ART."""

from __future__ import annotations


def test_an_answer_that_is_trained_elsewhere_is_a_plain_message(samples_of) -> None:
    (other,) = samples_of("art")[0]["additional_histories"]
    assert ["finish_reason" in each for each in other["messages_and_choices"]] == [False, False, False, True]


def test_a_masked_token_is_part_of_the_next_choices_prompt(samples_of) -> None:
    (other,) = samples_of("art")[1]["additional_histories"]
    pieces = [each for each in other["messages_and_choices"] if "finish_reason" in each]
    assert pieces[1]["prompt_token_ids"] == [*pieces[0]["prompt_token_ids"], 60, 61]
    assert [each["message"]["content"] for each in pieces] == ["", "gone"]


def test_a_choice_says_why_it_ended(group, samples_of) -> None:
    group[0]["calls"][1]["finish"] = "length"
    choices = [each for each in samples_of("art")[0]["messages_and_choices"] if "finish_reason" in each]
    assert [each["finish_reason"] for each in choices] == ["tool_calls", "length"]


def test_unknown_weights_have_no_version(group, samples_of) -> None:
    for sequence in group[1]["sequences"]:
        for segment in sequence["segments"]:
            segment.pop("policy_version_min", None)
            segment.pop("policy_version_max", None)
    assert samples_of("art")[1]["initial_policy_version"] is None
