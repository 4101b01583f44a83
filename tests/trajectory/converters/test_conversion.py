"""`turnstile.convert`."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import turnstile
from turnstile.errors import CallerError
from turnstile.trajectory.converters.conversion import Origin, convert
from turnstile.trajectory.files import write
from turnstile.trajectory.format import decode_line
from turnstile.trajectory.shapes import Rollout


def test_a_file_and_its_rollouts_give_the_same_samples(rollouts: list[Rollout], tmp_path: Path) -> None:
    path = tmp_path / "rollouts.parquet"
    write(path, rollouts)
    from_file = list(turnstile.convert(path, "prime-rl"))
    assert from_file == list(convert(rollouts, "prime_rl")) == list(convert(iter(rollouts), "prime_rl"))


def test_a_sample_says_where_it_came_from(rollouts: list[Rollout]) -> None:
    assert [each.origin for each in convert(rollouts, "areal")][1] == Origin(
        group_id="g-17",
        rollout_id="ro-0001",
        attempt=1,
        sequence_ids=("ro-0001/1",),
        reward=1.0,
        row=1,
        rows=2,
        row_weight=0.5,
    )
    (whole,) = [each.origin for each in convert(rollouts, "atropos")]
    assert (whole.group_id, whole.rollout_id, whole.rows) == ("g-17", None, 4)
    assert whole.sequence_ids == ("ro-0001/0", "ro-0001/1", "ro-0002/0", "ro-0002/1")


def test_the_report_says_what_became_of_everything(rollouts: list[Rollout]) -> None:
    made = convert(rollouts, "trl", one_sequence="longest")
    assert made.report.samples == 0
    assert len(list(made)) == 2
    report = made.report
    assert (report.samples, report.rollouts, report.sequences, report.trained_tokens) == (2, 2, 2, 7 + 3)
    assert report.left_out == {"other_sequence_of_its_rollout": 2}


def test_a_conversion_can_be_read_twice(rollouts: list[Rollout]) -> None:
    made = convert(rollouts, "areal")
    assert list(made) == list(made)
    assert made.report.samples == 4


@pytest.fixture
def made(group: list[dict[str, Any]]) -> Any:
    """Converts rollouts given as JSON; answers the samples and the report."""

    def make(trainer: str, given: list[dict[str, Any]], **options: Any) -> Any:
        conversion = convert([decode_line(json.dumps(each).encode()) for each in given], trainer, **options)
        return [each.sample for each in conversion], conversion.report

    return make


def test_case_d5_a_row_whose_arrays_differ_is_left_out_and_counted(group: list[dict[str, Any]], made: Any) -> None:
    group[0]["sequences"][0]["logprobs"] = []
    group[1]["sequences"][1]["logprobs"].pop()
    for trainer in ("areal", "slime", "nemo_rl", "openrlhf"):
        samples, report = made(trainer, group)
        assert len(samples) == 2
        assert report.left_out == {"row_unaligned": 2}
        assert report.trained_tokens == 2 + 4


def test_case_l4_rollouts_without_a_turn_give_no_row_and_are_still_compared(
    group: list[dict[str, Any]], made: Any
) -> None:
    bare = copy.deepcopy(group[1])
    bare |= {"rollout_id": "ro-0003", "sequences": [], "calls": [], "reward": 0.0}
    samples, report = made("trl_async", [*group, bare])
    assert [each["advantage"] for each in samples] == pytest.approx([2 / 3, 2 / 3, -1 / 3, -1 / 3])
    assert report.rollouts == 2


def test_incomplete_and_masked_sequences_are_left_out_by_reason(group: list[dict[str, Any]], made: Any) -> None:
    for at, reason in ((0, "incomplete_call"), (1, "auxiliary")):
        group[1]["sequences"][at]["segments"] = [
            each | ({"trainable": False, "mask_reason": reason} if each["kind"] == "sampled" else {})
            for each in group[1]["sequences"][at]["segments"]
        ]
    group[1]["sequences"][0]["complete"] = False
    _, report = made("miles", group)
    assert report.left_out == {"incomplete": 1, "nothing_to_train": 1}


def test_untrainable_rollouts_and_earlier_attempts_are_left_out_by_reason(
    group: list[dict[str, Any]], made: Any
) -> None:
    again = copy.deepcopy(group[0]) | {"attempt": 2}
    withheld = copy.deepcopy(group[1]) | {"rollout_id": "w", "trainable": False, "mask_reasons": ["evaluation"]}
    _, report = made("miles", [*group, again, withheld])
    assert report.left_out == {"earlier_attempt": 1, "rollout_untrainable": 1}


def test_what_is_asked_to_be_dropped_is_counted(group: list[dict[str, Any]], made: Any) -> None:
    samples, report = made("areal", group, max_length=20, drop=["row_too_long"])
    assert (len(samples), report.left_out) == (2, {"row_too_long": 1})


def test_what_only_the_converter_knows_can_be_dropped_too(group: list[dict[str, Any]], made: Any) -> None:
    for segment in group[0]["sequences"][0]["segments"]:
        segment.pop("policy_version_min", None)
        segment.pop("policy_version_max", None)
    samples, report = made("trl_async", group, drop=["policy_version_unknown"])
    assert (len(samples), report.left_out) == (3, {"policy_version_unknown": 1})


def test_sequences_of_another_model_are_left_out(group: list[dict[str, Any]], made: Any) -> None:
    group[1]["heads"][0]["model"] = "other"
    samples, report = made("miles", group, model="demo-model")
    assert (len(samples), report.left_out) == (2, {"other_model": 2})


def test_nothing_left_is_refused(group: list[dict[str, Any]], code_of) -> None:
    for each in group:
        each |= {"trainable": False, "mask_reasons": ["evaluation"]}
    assert code_of("areal") == "nothing_to_convert"


def test_a_group_comes_when_its_last_rollout_was_seen(group: list[dict[str, Any]], made: Any) -> None:
    other = copy.deepcopy(group)
    for each in other:
        each |= {"group_id": "h", "rollout_id": each["rollout_id"] + "b"}
    mixed = [group[0], other[0], other[1], group[1]]
    samples, _ = made("atropos", mixed)
    assert [len(each["tokens"]) for each in samples] == [4, 4]
    assert samples == made("atropos", group)[0] * 2


def test_notes_name_what_is_lost_and_what_is_counted_wrongly(group: list[dict[str, Any]], made: Any) -> None:
    _, report = made("nemo_rl", group)
    assert report.notes == (
        "NeMo-RL has no place for parts of rewards; sequences written without: 4",
        "NeMo-RL has no place for policy versions; sequences written without: 4",
        "NeMo-RL counts each sequence as a rollout when it compares rewards, so its baseline leans towards rollouts "
        "with many; rollouts with several: 2",
    )
    assert made("art", group)[1].notes == ()


def test_filters_that_a_trainer_recomputes_without_are_noted(group: list[dict[str, Any]], made: Any) -> None:
    group[0]["samplings"][0]["top_p"] = 0.9
    _, report = made("art", group)
    assert report.notes == (
        "W804 a trainer that recomputes gets another distribution: top_p without kept sets; rollouts: 1",
    )


def test_atif_is_for_people_and_gets_everything(group: list[dict[str, Any]], made: Any) -> None:
    group[0]["reward"] = None
    group[1] |= {"trainable": False, "mask_reasons": ["evaluation"]}
    samples, report = made("atif", [*group, copy.deepcopy(group[0]) | {"attempt": 2}])
    assert (len(samples), report.left_out) == (6, {})


def test_an_unknown_trainer_is_refused(rollouts: list[Rollout]) -> None:
    with pytest.raises(CallerError, match="one of trl, ") as refused:
        convert(rollouts, "vrel")
    assert refused.value.code == "trainer_unknown"
