"""The first of two passes over the rollouts: what a conversion has to know of all of them before it writes one.

It holds a few words a rollout and no ids, so a file of any length is converted in constant memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import msgspec

from turnstile.errors import CallerError
from turnstile.trajectory.check_fields import check_followed_indices
from turnstile.trajectory.converters.base import Facts, Keeps, Reward
from turnstile.trajectory.converters.groups import Key, group_advantages, without_group
from turnstile.trajectory.converters.options import Advantage, Options
from turnstile.trajectory.converters.refusals import is_dropped, refuse_models, refuse_temperatures
from turnstile.trajectory.finite import refuse_non_finite
from turnstile.trajectory.shapes import Rollout, Sequence


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of all rollouts together."""

    last_attempt: dict[str, int]
    """Of each rollout id: only its last attempt is converted."""
    advantages: dict[Key, float]
    """Of each rollout whose reward was compared; empty if the trainer takes none."""
    group_sizes: dict[str, int]
    """How many trainable rollouts, in their last attempt, each group has."""


class _Seen(msgspec.Struct, frozen=True):
    """What is kept of one rollout."""

    attempt: int
    group: str
    grouped: bool
    reward: float | None
    counts: bool
    """Whether it is one of the rollouts to train of its group."""
    models: frozenset[str]
    temperatures: frozenset[float]


def group_of(rollout: Rollout) -> str:
    """The name of a rollout's group; one by itself, which no group id can be, if it is in none."""
    return f"\0{rollout.rollout_id}" if rollout.group_id is None else rollout.group_id


def is_trained(sequence: Sequence) -> bool:
    """Whether any token of a sequence is trained."""
    return any(segment.trainable for segment, _ in sequence.sampled_segments())


def survey(rollouts: Iterable[Rollout], facts: Facts, options: Options) -> Survey:
    """Look at all rollouts once.

    Raises: CallerError for what makes the whole of them no input for a trainer: a rollout that is there twice or is
    damaged, several models or temperatures, a group of another size, a reward without a group to be compared with.
    """
    seen: dict[str, _Seen] = {}
    keys: set[Key] = set()
    for rollout in rollouts:
        _refuse_damaged(rollout, keys)
        earlier = seen.get(rollout.rollout_id)
        if earlier is None or earlier.attempt <= rollout.attempt:
            seen[rollout.rollout_id] = _see(rollout, options)
    if facts.keeps is Keeps.TRAINED:
        refuse_models(frozenset[str]().union(*(each.models for each in seen.values())), options)
    refuse_temperatures(frozenset[float]().union(*(each.temperatures for each in seen.values())), facts, options)
    sizes: Counter[str] = Counter()
    for each in seen.values():
        sizes[each.group] += each.counts
    _refuse_sizes(sizes, options)
    return Survey(
        last_attempt={name: each.attempt for name, each in seen.items()},
        advantages=_advantages(seen, facts, options),
        group_sizes=sizes,
    )


def _refuse_damaged(rollout: Rollout, keys: set[Key]) -> None:
    """Raises: CallerError with the code that `turnstile validate` has for it: E104, E105 or E106."""
    refuse_non_finite(rollout)
    key = (rollout.rollout_id, rollout.attempt)
    for fault in check_followed_indices(rollout):
        raise CallerError(
            f"Rollout {rollout.rollout_id} is damaged: {fault.message}",
            "Look at the file with `turnstile validate`",
            code=fault.code,
        )
    if key in keys:
        raise CallerError(
            f"Rollout {rollout.rollout_id} (attempt {rollout.attempt}) is there twice and would be trained twice",
            "Give each rollout once; a folder may hold one export in two forms",
            code="E104",
        )
    keys.add(key)


def _see(rollout: Rollout, options: Options) -> _Seen:
    sequences = [sequence for sequence in rollout.sequences if is_trained(sequence)]
    models = {rollout.heads[sequence.head].model for sequence in sequences}
    return _Seen(
        attempt=rollout.attempt,
        group=group_of(rollout),
        grouped=rollout.group_id is not None,
        reward=rollout.reward if rollout.trainable else None,
        counts=rollout.trainable and not is_dropped(rollout, options),
        models=frozenset(models),
        temperatures=frozenset(
            temperature
            for sequence in sequences
            if options.model in ("", rollout.heads[sequence.head].model)
            for temperature in _temperatures(rollout, sequence)
        ),
    )


def _temperatures(rollout: Rollout, sequence: Sequence) -> set[float]:
    calls = {segment.call for segment, _ in sequence.sampled_segments() if segment.trainable}
    found = {rollout.samplings[rollout.calls[call].sampling].temperature for call in calls if call is not None}
    return {each for each in found if each is not None}


def _refuse_sizes(sizes: Counter[str], options: Options) -> None:
    for group, size in sizes.items():
        if size and options.group_size not in (0, size):
            raise of_another_size(group, f"has {size} rollouts to train instead of {options.group_size}")


def of_another_size(group: str, problem: str) -> CallerError:
    """The refusal of a group that gives a trainer more or fewer rollouts than it counts."""
    name = "A rollout without a group" if group.startswith("\0") else f"Group `{group}`"
    return CallerError(
        f"{name} {problem}",
        "Run the missing ones, or write whole groups apart with `--group`; a trainer cuts groups by counting",
        code="group_size",
    )


def _advantages(seen: dict[str, _Seen], facts: Facts, options: Options) -> dict[Key, float]:
    if facts.reward is not Reward.TURNED_INTO_ADVANTAGES or options.advantage is Advantage.RECORDED:
        return {}
    groups: defaultdict[str, dict[Key, float]] = defaultdict(dict)
    for name, each in seen.items():
        if each.reward is not None:
            if not each.grouped and options.advantage is not Advantage.REWARD:
                raise without_group(name)
            groups[each.group][name, each.attempt] = each.reward
    return {
        key: value
        for group, rewards in groups.items()
        for key, value in group_advantages(group, rewards, options.advantage)
    }
