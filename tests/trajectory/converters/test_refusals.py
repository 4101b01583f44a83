"""What a trainer cannot express is refused by name, and not lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.trajectory.converters import CONVERTERS
from turnstile.trajectory.converters.base import Keeps, Media, Reward, Rows, Temperature, Weights
from turnstile.trajectory.converters.refusals import OF_A_ROLLOUT

Code = Callable[..., str]
Group = list[dict[str, Any]]
ALL = [each.name for each in CONVERTERS]


def those(wanted: Callable[[Any], bool]) -> list[str]:
    return [each.name for each in CONVERTERS if wanted(each.facts)]


def picture(group: Group) -> Group:
    """The example with an image in the result of its tool, and one sequence."""
    one = group[0]
    one["sequences"] = one["sequences"][:1]
    one["sequences"][0]["media"] = [
        {
            "sha256": "ab" * 32,
            "mime": "image/png",
            "kind": "image",
            "offset": 13,
            "length": 2,
            "num_tokens": 2,
            "placeholder_id": 50,
            "width": 2,
            "height": 1,
        }
    ]
    return [one]


@pytest.mark.parametrize("name", those(lambda facts: facts.reward is not Reward.MAY_BE_UNKNOWN))
def test_an_unscored_rollout_is_no_rollout_with_reward_0(name: str, group: Group, code_of: Code) -> None:
    group[0]["reward"] = None
    assert code_of(name) == "reward_missing"
    # One of the two is left: the group still compares with itself.
    assert code_of(name, drop=["reward_missing"]) == ""


@pytest.mark.parametrize("name", those(lambda facts: facts.reward is Reward.MAY_BE_UNKNOWN))
def test_an_unscored_rollout_stays_unscored_where_the_trainer_has_a_word_for_it(
    name: str, group: Group, code_of: Code
) -> None:
    group[0]["reward"] = None
    assert code_of(name, one_sequence="last") == ""


@pytest.mark.parametrize("name", those(lambda facts: facts.keeps is Keeps.TRAINED))
def test_a_rollout_that_still_runs_is_not_trained(name: str, group: Group, code_of: Code) -> None:
    group[0]["status"] = "running"
    assert code_of(name, one_sequence="last") == "rollout_running"
    assert code_of(name, one_sequence="last", drop=["rollout_running"]) == ""


def test_a_code_that_is_about_no_rollout_cannot_be_dropped(code_of: Code) -> None:
    assert code_of("areal", drop=["row_too_lomg"]) == "option_invalid"
    assert code_of("areal", drop=["model_ambiguous"]) == "option_invalid"


@pytest.mark.parametrize("name", those(lambda facts: facts.rows is Rows.ONE))
def test_case_l1_several_sequences_are_refused_where_there_is_room_for_one(name: str, code_of: Code) -> None:
    assert code_of(name) == "several_sequences"
    assert code_of(name, one_sequence="longest") == ""


@pytest.mark.parametrize("name", those(lambda facts: facts.temperature is not Temperature.UNKNOWN))
def test_case_d2_raw_numbers_at_another_temperature_than_1_are_refused(name: str, group: Group, code_of: Code) -> None:
    for rollout in group:
        rollout["samplings"][0]["temperature"] = 0.7
    assert code_of(name, one_sequence="last") == ""
    for rollout in group:
        for call in rollout["calls"]:
            call["logprobs_mode"] = "raw"
    assert code_of(name, one_sequence="last") == "logprobs_raw"
    assert code_of(name, one_sequence="last", raw_logprobs="allow") == ""


@pytest.mark.parametrize("name", those(lambda facts: facts.temperature is not Temperature.UNKNOWN))
def test_greedy_answers_are_not_trained_as_if_they_had_been_sampled(name: str, group: Group, code_of: Code) -> None:
    for rollout in group:
        rollout["samplings"][0]["temperature"] = 0.0
    assert code_of(name, one_sequence="last") == "logprobs_raw"


@pytest.mark.parametrize("name", those(lambda facts: facts.temperature is Temperature.ONE_FOR_ALL))
def test_two_temperatures_are_refused_where_the_trainer_has_one_setting(name: str, group: Group, code_of: Code) -> None:
    group[0]["samplings"][0]["temperature"] = 0.7
    assert code_of(name, one_sequence="last") == "temperature_mixed"


def test_two_temperatures_stand_beside_their_tokens_where_the_trainer_has_one_each(
    group: Group, samples_of: Any
) -> None:
    group[0]["samplings"][0]["temperature"] = 0.5
    first = samples_of("prime_rl")[0]
    assert first["temperatures"] == [1.0] * 7 + [0.5] * 4 + [1.0] * 8 + [0.5] * 3


@pytest.mark.parametrize("name", those(lambda facts: facts.temperature is Temperature.EACH_TOKEN))
def test_an_unknown_temperature_cannot_stand_beside_a_token(name: str, group: Group, code_of: Code) -> None:
    group[1]["samplings"][0]["temperature"] = None
    assert code_of(name) == "temperature_unknown"


def test_raw_numbers_at_an_unknown_temperature_are_refused(group: Group, code_of: Code) -> None:
    group[1]["samplings"][0]["temperature"] = None
    assert code_of("areal") == ""
    group[1]["calls"][0]["logprobs_mode"] = "raw"
    assert code_of("areal") == "temperature_unknown"


@pytest.mark.parametrize("name", those(lambda facts: facts.keeps is Keeps.TRAINED))
@pytest.mark.parametrize("mode", ["unknown", "none"])
def test_numbers_of_unknown_meaning_are_refused(name: str, mode: str, group: Group, code_of: Code) -> None:
    group[1]["calls"][1]["logprobs_mode"] = mode
    assert code_of(name, one_sequence="last") == "logprobs_unknown"


@pytest.mark.parametrize("name", those(lambda facts: facts.keeps is Keeps.TRAINED))
def test_case_d3_suspect_numbers_are_refused(name: str, group: Group, code_of: Code) -> None:
    group[0]["extra"]["turnstile.calls"] = {"c2": {"notes": [{"code": "logprob_suspect:all_zero", "detail": "n=2"}]}}
    assert code_of(name, one_sequence="last") == "logprobs_suspect"
    assert code_of(name, one_sequence="last", raw_logprobs="allow") == ""


@pytest.mark.parametrize("name", those(lambda facts: facts.weights is Weights.ALL_ONE))
def test_weights_are_refused_where_there_is_no_place_for_them(name: str, group: Group, code_of: Code) -> None:
    group[0]["sequences"][1]["segments"][-1]["weight"] = 0.5
    assert code_of(name, one_sequence="last") == "weights_unsupported"


@pytest.mark.parametrize("name", those(lambda facts: facts.media is Media.REFUSED))
def test_images_are_refused_where_they_cannot_stand_beside_exact_ids(name: str, group: Group, code_of: Code) -> None:
    assert code_of(name, picture(group)) == "images_unsupported"
    assert code_of(name, picture(group), images="apart") == ""


@pytest.mark.parametrize("name", those(lambda facts: facts.media is Media.CARRIED))
def test_case_a5_a_placeholder_that_the_model_sampled_is_no_image(name: str, group: Group, code_of: Code) -> None:
    with_image = picture(group)
    assert code_of(name, with_image, advantage="reward") == ""
    with_image[0]["sequences"][0]["token_ids"][20] = 50
    assert code_of(name, with_image, advantage="reward") == "placeholder_sampled"


@pytest.mark.parametrize("name", those(lambda facts: facts.media is Media.CARRIED))
@pytest.mark.parametrize("fields", [{"offset": 21}, {"offset": 18}, {"placeholder_id": 99}, {"num_tokens": 3}])
def test_case_i1_an_image_whose_ids_are_not_all_there_gives_no_row(
    name: str, fields: dict[str, int], group: Group, code_of: Code
) -> None:
    with_image = picture(group)
    with_image[0]["sequences"][0]["media"][0] |= fields
    assert code_of(name, with_image, advantage="reward") == "nothing_to_convert"


@pytest.mark.parametrize("name", ALL)
def test_case_h3_a_sequence_that_does_not_fit_is_refused_and_not_cut(name: str, code_of: Code) -> None:
    assert code_of(name, one_sequence="last", max_length=20) == "row_too_long"


@pytest.mark.parametrize("name", those(lambda facts: facts.keeps is Keeps.TRAINED))
def test_several_models_need_a_choice(name: str, group: Group, code_of: Code) -> None:
    group[1]["heads"][0]["model"] = "other"
    assert code_of(name, one_sequence="last") == "model_ambiguous"
    assert code_of(name, one_sequence="last", model="nobody") == "model_not_in_file"
    assert code_of(name, one_sequence="last", model="other", advantage="reward") == ""


@pytest.mark.parametrize("name", ["verl", "skyrl", "atropos", "prime_rl"])
def test_a_sequences_own_reward_is_refused_where_there_is_one_a_rollout(name: str, group: Group, code_of: Code) -> None:
    group[0]["sequences"][1]["reward"] = 0.25
    assert code_of(name) == "reward_per_sequence"


@pytest.mark.parametrize("name", ["slime", "areal", "nemo_rl"])
def test_a_sequences_own_reward_is_taken_where_each_has_one(name: str, group: Group, code_of: Code) -> None:
    group[0]["sequences"][1]["reward"] = 0.25
    assert code_of(name) == ""


def test_the_codes_to_drop_are_those_without_a_star_in_the_reference() -> None:
    page = Path(__file__).parent.parent.parent.parent / "docs" / "reference" / "errors.md"
    section = page.read_text(encoding="utf-8").split("\n## Converting for a trainer\n")[1]
    unstarred = set(re.findall(r"^\| `(\w+)` \| (?!\\\*)", section, re.MULTILINE))
    assert unstarred - {"row_unaligned"} == OF_A_ROLLOUT
