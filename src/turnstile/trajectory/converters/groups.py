"""Advantages, weights and filters, all over rollouts: a rollout with many sequences counts once.

Sums and means are exact (fractions), so neither the order of the rollouts nor their number of sequences can move
an advantage by a bit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TypeAlias, assert_never

from turnstile.errors import CallerError
from turnstile.trajectory.converters.options import Advantage
from turnstile.trajectory.shapes import Rollout

STD_EPSILON = 1e-6
"""Added to a group's standard deviation, as verl, slime and ART do."""

Key: TypeAlias = tuple[str, int]
"""A rollout's id and attempt."""


def scored(rollouts: Iterable[Rollout]) -> Iterator[Rollout]:
    """Those with a reward; 0 is one."""
    return (rollout for rollout in rollouts if rollout.reward is not None)


def trainable(rollouts: Iterable[Rollout]) -> Iterator[Rollout]:
    """Those of which anything may be trained."""
    return (rollout for rollout in rollouts if rollout.trainable)


def advantages_of(rollouts: Iterable[Rollout], how: Advantage) -> dict[Key, float]:
    """One advantage for each scored, trainable rollout of groups, by rollout id and attempt.

    Raises: CallerError `group_missing` for a rollout without a group, `group_too_small` where one rollout alone has
    no advantage, both only if `how` compares rollouts.
    """
    groups: defaultdict[str, dict[Key, float]] = defaultdict(dict)
    for rollout in trainable(scored(rollouts)):
        if rollout.group_id is None and how is not Advantage.REWARD:
            raise without_group(rollout.rollout_id)
        groups[rollout.group_id or ""][rollout.rollout_id, rollout.attempt] = rollout.reward or 0.0
    return {key: value for name, rewards in groups.items() for key, value in group_advantages(name, rewards, how)}


def group_advantages(group_id: str, rewards: dict[Key, float], how: Advantage) -> Iterator[tuple[Key, float]]:
    """The advantages of the rollouts of one group.

    Raises: CallerError `group_too_small`.
    """
    if how is Advantage.REWARD:
        yield from rewards.items()
        return
    exact = {key: Fraction(reward) for key, reward in rewards.items()}
    mean = sum(exact.values(), Fraction(0)) / len(exact)
    scale = _scale(group_id, [value - mean for value in exact.values()], how)
    for key, value in exact.items():
        yield key, float((value - mean) * scale)


def _scale(group_id: str, centered: list[Fraction], how: Advantage) -> Fraction:
    """What the distance from the mean is multiplied with."""
    count = len(centered)
    match how:
        case Advantage.CENTERED | Advantage.REWARD | Advantage.RECORDED:
            return Fraction(1)
        case Advantage.RLOO:
            # The mean of the others lies count / (count - 1) times as far away as the mean of all.
            return Fraction(count, _at_least_two(group_id, count) - 1)
        case Advantage.GRPO:
            variance = sum((each * each for each in centered), Fraction(0)) / (_at_least_two(group_id, count) - 1)
            return 1 / (Fraction(math.sqrt(variance)) + Fraction(STD_EPSILON))
        case _:
            assert_never(how)


def _at_least_two(group_id: str, count: int) -> int:
    if count < 2:
        raise CallerError(
            f"Group {group_id} has one scored rollout, which has nothing to be compared with",
            "Leave the group out, or choose `--advantage centered`, which gives it 0",
            code="group_too_small",
        )
    return count


def without_group(rollout_id: str) -> CallerError:
    """The refusal of a rollout that is to be compared with others and is in no group."""
    return CallerError(
        f"Rollout {rollout_id} is in no group, so its reward has no others to be compared with",
        "Open rollouts with a `group_id`, or choose `--advantage reward`",
        code="group_missing",
    )


def row_weight(rows: int) -> float:
    """What each of a rollout's rows weighs if all of them together are to weigh one."""
    return 1.0 / rows
