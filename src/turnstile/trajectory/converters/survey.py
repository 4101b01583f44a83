"""The first of two passes over the rollouts: what a conversion has to know of all of them before it writes one.

It holds a few words a rollout and no ids, so a file of any length is converted in constant memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from turnstile.errors import CallerError
from turnstile.trajectory.converters.base import Facts, Keeps, Reward
from turnstile.trajectory.converters.groups import Key, group_advantages, without_group
from turnstile.trajectory.converters.options import Advantage, Options
from turnstile.trajectory.converters.refusals import refuse_models, refuse_temperatures
from turnstile.trajectory.shapes import Rollout, Sequence


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of all rollouts together."""

    last_attempt: dict[str, int]
    """Of each rollout id: only its last attempt is converted."""
    advantages: dict[Key, float]
    """Of each rollout whose reward was compared; empty if the trainer takes none."""
    group_sizes: dict[str, int]
    """How many trainable rollouts, in their last attempt, each group has."""


class _Seen(msgspec.Struct):
    """What the pass gathers."""

    last_attempt: dict[str, int]
    rewards: defaultdict[str, dict[Key, float]]
    members: defaultdict[str, dict[str, bool]]
    models: set[str]
    temperatures: set[float]
    without_group: str = ""


def group_of(rollout: Rollout) -> str:
    """The name of a rollout's group; one by itself, which no group id can be, if it is in none."""
    return f"\0{rollout.rollout_id}" if rollout.group_id is None else rollout.group_id


def is_trained(sequence: Sequence) -> bool:
    """Whether any token of a sequence is trained."""
    return any(segment.trainable for segment, _ in sequence.sampled_segments())


def survey(rollouts: Iterable[Rollout], facts: Facts, options: Options) -> Survey:
    """Look at all rollouts once.

    Raises: CallerError for what makes the whole of them no input for a trainer: several models or temperatures, a
    group of another size, a reward without a group to be compared with.
    """
    seen = _Seen({}, defaultdict(dict), defaultdict(dict), set(), set())
    for rollout in rollouts:
        _see(seen, rollout, options)
    if facts.keeps is Keeps.TRAINED:
        refuse_models(frozenset(seen.models), options)
    refuse_temperatures(frozenset(seen.temperatures), facts, options)
    sizes = {group: sum(members.values()) for group, members in seen.members.items()}
    _refuse_sizes(sizes, options)
    return Survey(last_attempt=seen.last_attempt, advantages=_advantages(seen, facts, options), group_sizes=sizes)


def _see(seen: _Seen, rollout: Rollout, options: Options) -> None:
    group, name = group_of(rollout), rollout.rollout_id
    if seen.last_attempt.get(name, 0) > rollout.attempt:
        return
    earlier = seen.last_attempt.get(name)
    seen.last_attempt[name] = rollout.attempt
    rewards = seen.rewards[group]
    if earlier is not None:
        rewards.pop((name, earlier), None)
    left_out = rollout.reward is None and "reward_missing" in options.drop
    seen.members[group][name] = rollout.trainable and not left_out
    if rollout.trainable and rollout.reward is not None:
        rewards[name, rollout.attempt] = rollout.reward
        if rollout.group_id is None:
            seen.without_group = name
    for sequence in filter(is_trained, rollout.sequences):
        model = rollout.heads[sequence.head].model
        seen.models.add(model)
        if options.model in ("", model):
            seen.temperatures |= _temperatures(rollout, sequence)


def _temperatures(rollout: Rollout, sequence: Sequence) -> set[float]:
    calls = {segment.call for segment, _ in sequence.sampled_segments() if segment.trainable}
    found = {rollout.samplings[rollout.calls[call].sampling].temperature for call in calls if call is not None}
    return {each for each in found if each is not None}


def _refuse_sizes(sizes: dict[str, int], options: Options) -> None:
    wanted = options.group_size
    other = Counter({group: size for group, size in sizes.items() if wanted and size and size != wanted})
    for group, size in other.items():
        name = "of no name" if group.startswith("\0") else f"`{group}`"
        raise CallerError(
            f"The group {name} has {size} rollouts to train instead of {wanted}",
            "Run the missing ones, or write the group apart with `--group`; a trainer cuts groups by counting",
            code="group_size",
        )


def _advantages(seen: _Seen, facts: Facts, options: Options) -> dict[Key, float]:
    if facts.reward is not Reward.TURNED_INTO_ADVANTAGES or options.advantage is Advantage.RECORDED:
        return {}
    if seen.without_group and options.advantage is not Advantage.REWARD:
        raise without_group(seen.without_group)
    return {
        key: value
        for group, rewards in seen.rewards.items()
        if rewards
        for key, value in group_advantages(group, rewards, options.advantage)
    }
