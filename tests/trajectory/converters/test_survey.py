"""What a conversion knows of all rollouts before it writes one."""

from __future__ import annotations

import copy
import math
import re
import struct
from typing import Any

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.tokens import LogprobRun
from turnstile.trajectory.converters import converter_named
from turnstile.trajectory.converters.conversion import convert
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.survey import survey
from turnstile.trajectory.shapes import Rollout


def test_it_holds_a_few_words_a_rollout(rollouts: list[Rollout]) -> None:
    known = survey(rollouts, converter_named("tinker").facts, Options())
    assert known.last_attempt == {"ro-0001": 1, "ro-0002": 1}
    assert known.advantages == {("ro-0001", 1): 0.5, ("ro-0002", 1): -0.5}
    assert known.group_sizes == {"g-17": 2}


def test_nothing_is_compared_for_a_trainer_that_takes_rewards(rollouts: list[Rollout]) -> None:
    assert survey(rollouts, converter_named("slime").facts, Options()).advantages == {}


def test_an_earlier_attempt_is_in_no_mean(group: list[dict[str, Any]], samples_of) -> None:
    again = copy.deepcopy(group[1])
    again["attempt"], again["reward"] = 2, 1.0
    later_first = samples_of("trl_async", [again, *group])
    assert [each["advantage"] for each in later_first] == [0.0] * 4
    assert later_first == samples_of("trl_async", [again, group[0]])


@pytest.mark.parametrize("size", [1, 3])
def test_a_group_of_another_size_is_refused(size: int, code_of) -> None:
    assert code_of("trl", one_sequence="last", group_size=size) == "group_size"


def test_a_group_of_the_right_size_is_taken(code_of) -> None:
    assert code_of("trl", one_sequence="last", group_size=2) == ""


def test_a_rollout_that_gives_no_row_is_missing_in_its_group(group: list[dict[str, Any]], code_of) -> None:
    group[1] |= {"trainable": False, "mask_reasons": ["evaluation"]}
    assert code_of("trl", one_sequence="last", group_size=2) == "group_size"


def test_a_rollout_without_a_group_has_no_advantage(group: list[dict[str, Any]], code_of) -> None:
    group[0]["group_id"] = None
    assert code_of("tinker") == "group_missing"
    assert code_of("tinker", advantage="reward") == ""
    assert code_of("slime") == ""


def test_a_rollout_whose_rows_are_all_dropped_leaves_its_group_short(code_of) -> None:
    dropped = {"max_length": 18, "drop": ["row_too_long"]}
    assert code_of("trl", one_sequence="last", **dropped) == "nothing_to_convert"
    assert code_of("trl", one_sequence="last", group_size=2, **dropped) == "group_size"


def test_what_an_earlier_attempt_was_sampled_with_does_not_matter(group: list[dict[str, Any]], code_of) -> None:
    again = copy.deepcopy(group[1])
    again["attempt"] = 2
    group[1]["samplings"][0]["temperature"] = 0.5
    group[1]["heads"][0]["model"] = "other"
    assert code_of("areal", [*group, again]) == ""
    assert code_of("areal", [group[0], again, group[1]]) == ""
    assert code_of("areal") == "model_ambiguous"


def test_a_withheld_rollout_is_in_no_mean(group: list[dict[str, Any]], samples_of) -> None:
    withheld = copy.deepcopy(group[1]) | {"rollout_id": "w", "reward": 9.0}
    withheld |= {"trainable": False, "mask_reasons": ["evaluation"]}
    assert [each["advantage"] for each in samples_of("trl_async", [*group, withheld])] == [0.5, 0.5, -0.5, -0.5]


def test_temperatures_of_another_model_do_not_matter(group: list[dict[str, Any]], code_of) -> None:
    group[1]["heads"][0]["model"] = "other"
    group[1]["samplings"][0]["temperature"] = 0.5
    assert code_of("areal", model="demo-model") == ""


def test_a_rollout_that_is_there_twice_is_refused_instead_of_trained_twice(
    group: list[dict[str, Any]], code_of
) -> None:
    group.append(copy.deepcopy(group[0]))
    assert code_of("trl_async") == "E104"


@pytest.mark.parametrize(
    ("where", "index"),
    [
        (("sequences", 0, "head"), 9),
        (("sequences", 0, "head"), -1),
        (("sequences", 0, "segments", 2, "call"), 9),
        (("sequences", 0, "messages", 0), 99),
        (("calls", 0, "sampling"), 9),
    ],
)
def test_a_rollout_that_points_at_what_it_does_not_hold_is_refused(
    group: list[dict[str, Any]], code_of, where: tuple[str | int, ...], index: int
) -> None:
    at: Any = group[0]
    for step in where[:-1]:
        at = at[step]
    at[where[-1]] = index
    assert code_of("trl_async") == "E105"


def test_a_number_that_is_not_finite_reaches_no_trainer(rollouts: list[Rollout]) -> None:
    scored = msgspec.structs.replace(rollouts[1], reward=math.nan)
    with pytest.raises(CallerError, match="reward of rollout ro-0002 is not finite"):
        list(convert([rollouts[0], scored], "tinker"))
    first, *others = rollouts[0].sequences
    drawn = msgspec.structs.replace(
        first, logprobs=LogprobRun(struct.pack("<f", -math.inf) + first.logprobs.packed[4:])
    )
    recorded = msgspec.structs.replace(rollouts[0], sequences=(drawn, *others))
    with pytest.raises(CallerError, match=re.escape("sequences[0].logprobs of rollout ro-0001 is not finite")):
        list(convert([recorded, rollouts[1]], "slime"))
