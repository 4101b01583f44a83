"""verl."""

from __future__ import annotations


def test_images_are_named_by_hash_beside_expanded_ids(group, samples_of) -> None:
    one = group[0]
    one["sequences"] = one["sequences"][:1]
    one["heads"][0]["mm_processor_kwargs"] = {"max_pixels": 1024}
    one["sequences"][0]["media"] = [
        {"sha256": "ab" * 32, "mime": "image/png", "kind": "image", "offset": 13, "length": 2, "num_tokens": 2}
        | {"placeholder_id": 50, "width": None, "height": None}
    ]
    ((output,),) = [each["outputs"] for each in samples_of("verl", [one])]
    assert output["multi_modal_data"] == {
        "images": [{"sha256": "ab" * 32, "path": f"ab/{'ab' * 32}", "mime": "image/png", "num_tokens": 2}]
    }
    assert output["mm_processor_kwargs"] == {"max_pixels": 1024}
    assert output["prompt_ids"] + output["response_ids"] == one["sequences"][0]["token_ids"]


def test_unknown_weights_are_left_out(group, samples_of) -> None:
    for segment in group[0]["sequences"][0]["segments"]:
        segment.pop("policy_version_min", None)
        segment.pop("policy_version_max", None)
    first = samples_of("verl")[0]["outputs"][0]
    assert set(first["extra_fields"]) == {"reward_extra_info", "turnstile_sequence_id"}


def test_an_unscored_rollout_is_left_to_the_reward_loop(group, samples_of) -> None:
    group[0]["reward"] = None
    assert [each["reward_score"] for each in samples_of("verl")[0]["outputs"]] == [None, None]


def test_the_prompt_region_is_filled_and_the_rest_begins_the_response(group, samples_of) -> None:
    output = samples_of("verl", prompt_length=4, max_length=32)[1]["outputs"][1]
    assert (output["prompt_ids"], output["response_ids"][:3]) == ([1, 12, 2, 1], [20, 30, 31])
    assert output["response_mask"] == [0] * 11 + [1, 0, 1, 1]
