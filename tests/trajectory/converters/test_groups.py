"""Advantages over rollouts, in exact arithmetic."""

from __future__ import annotations

import random
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.errors import CallerError
from turnstile.trajectory.converters.groups import advantages_of, group_advantages, row_weight, scored, trainable
from turnstile.trajectory.converters.options import Advantage
from turnstile.trajectory.shapes import Rollout


def of(rewards: list[float], how: Advantage) -> list[float]:
    return [value for _, value in group_advantages("g", {(str(at), 1): each for at, each in enumerate(rewards)}, how)]


def test_centered_is_the_reward_less_the_mean() -> None:
    assert of([1.0, 0.0], Advantage.CENTERED) == [0.5, -0.5]
    assert of([1.0, 1.0, 1.0, 0.0], Advantage.CENTERED) == [0.25, 0.25, 0.25, -0.75]


def test_rloo_is_the_reward_less_the_mean_of_the_others() -> None:
    # Others of 1: (1 + 0 + 0) / 3; others of 0: (1 + 1 + 0) / 3.
    assert of([1.0, 1.0, 0.0, 0.0], Advantage.RLOO) == pytest.approx([2 / 3, 2 / 3, -2 / 3, -2 / 3], abs=1e-15)


def test_grpo_divides_by_the_sample_deviation_of_the_group() -> None:
    # Mean 2, squares 4 + 0 + 4 over n - 1 = 2: the deviation is 2.
    assert of([0.0, 2.0, 4.0], Advantage.GRPO) == pytest.approx([-2 / 2.000001, 0.0, 2 / 2.000001], abs=1e-15)


def test_equal_rewards_have_no_advantage() -> None:
    assert of([0.3, 0.3, 0.3], Advantage.GRPO) == [0.0, 0.0, 0.0]


def test_the_reward_itself_is_compared_with_nothing() -> None:
    assert of([0.3], Advantage.REWARD) == [0.3]


@pytest.mark.parametrize("how", [Advantage.RLOO, Advantage.GRPO])
def test_one_rollout_alone_has_nothing_to_be_compared_with(how: Advantage) -> None:
    with pytest.raises(CallerError) as refused:
        of([1.0], how)
    assert refused.value.code == "group_too_small"


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9), st.sampled_from(list(Advantage)), st.randoms())
def test_the_order_of_the_rollouts_moves_no_bit(rewards: list[float], how: Advantage, chance: random.Random) -> None:
    order = list(range(len(rewards)))
    chance.shuffle(order)
    there, here = of(rewards, how), of([rewards[at] for at in order], how)
    assert here == [there[at] for at in order]


@given(st.lists(st.integers(-100, 100), min_size=2, max_size=9))
def test_centered_advantages_sum_to_nothing(rewards: list[int]) -> None:
    assert abs(sum(Fraction(each) for each in of([float(each) for each in rewards], Advantage.CENTERED))) < 1e-12


def test_case_l1_a_rollout_with_three_sequences_counts_once(rollouts: list[Rollout]) -> None:
    one, two = rollouts
    three = msgspec.structs.replace(one, sequences=(*one.sequences, one.sequences[0]))
    assert advantages_of([three, two], Advantage.CENTERED) == {("ro-0001", 1): 0.5, ("ro-0002", 1): -0.5}
    assert [row_weight(len(each.sequences)) for each in (three, two)] == [1 / 3, 0.5]


def test_unscored_and_untrainable_rollouts_are_in_no_mean(rollouts: list[Rollout]) -> None:
    one, two = rollouts
    unscored = msgspec.structs.replace(two, rollout_id="u", reward=None)
    withheld = msgspec.structs.replace(two, rollout_id="w", reward=9.0, trainable=False, mask_reasons=("evaluation",))
    assert advantages_of([one, two, unscored, withheld], Advantage.CENTERED) == {
        ("ro-0001", 1): 0.5,
        ("ro-0002", 1): -0.5,
    }
    assert [each.rollout_id for each in scored([one, unscored])] == ["ro-0001"]
    assert [each.rollout_id for each in trainable([one, withheld])] == ["ro-0001"]


def test_groups_are_apart(rollouts: list[Rollout]) -> None:
    one, two = rollouts
    others = [msgspec.structs.replace(each, rollout_id=each.rollout_id + "b", group_id="h") for each in (two, two)]
    others[1] = msgspec.structs.replace(others[1], attempt=2)
    assert advantages_of([one, two, *others], Advantage.CENTERED) == {
        ("ro-0001", 1): 0.5,
        ("ro-0002", 1): -0.5,
        ("ro-0002b", 1): 0.0,
        ("ro-0002b", 2): 0.0,
    }


def test_a_rollout_without_a_group_cannot_be_compared(rollouts: list[Rollout]) -> None:
    alone = msgspec.structs.replace(rollouts[0], group_id=None)
    assert advantages_of([alone], Advantage.REWARD) == {("ro-0001", 1): 1.0}
    with pytest.raises(CallerError) as refused:
        advantages_of([alone], Advantage.CENTERED)
    assert refused.value.code == "group_missing"
