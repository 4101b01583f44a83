"""TRL's `GRPOTrainer` on agents that run through Turnstile: a ready `rollout_func` and its reward function.

TRL itself is not imported: what it is given are plain lists. docs/train/trl.md has the settings that it needs.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeAlias, cast

from turnstile.client import Client
from turnstile.integrations.running import RunAgent, Task, run_all
from turnstile.trajectory.converters.conversion import convert
from turnstile.trajectory.format import Fields, Rollout

OneSequence: TypeAlias = Literal["refuse", "longest", "last"]
Images: TypeAlias = Literal["refuse", "apart"]
Columns: TypeAlias = dict[str, list[object]]


class Trainer(Protocol):
    """What is read of TRL's trainer."""

    @property
    def num_generations(self) -> int:
        """Rollouts in a group."""
        ...


RolloutFunc: TypeAlias = Callable[[Sequence[object], Trainer], Columns]


def rollout_func(
    client: Client,
    run_agent: RunAgent[object],
    *,
    workers: int = 8,
    one_sequence: OneSequence = "refuse",
    images: Images = "refuse",
) -> RolloutFunc:
    """A `rollout_func` that runs an agent for each prompt, through a Turnstile server.

    Each prompt, which TRL repeats `num_generations` times, is a group. An agent that raises leaves a failed, unscored
    rollout; one without any answer gives a row without a token to train. If all fail, the first error is raised.

    Args:
        client: of the server that the agents go through.
        run_agent: runs one agent: `run_agent(rollout, prompt)` points it at `rollout.openai_base_url` with
            `rollout.agent_key`, and answers the reward or None.
        workers: agents that run at once.
        one_sequence: which sequence stands for a rollout with several, for which TRL has no room.
        images: "apart" gives rows with images without them, for a trainer that takes them by another way: TRL's own
            has none behind a `rollout_func`.
    """
    name, steps = secrets.token_hex(4), iter(range(2**62))

    def rollouts_of(prompts: Sequence[object], trainer: Trainer) -> Columns:
        groups = _groups(prompts, trainer.num_generations)
        step = f"trl-{name}-{next(steps)}"
        tasks = [Task(prompt, f"{step}-{group}", index) for prompt, (group, index) in zip(prompts, groups, strict=True)]
        return _columns(run_all(client, run_agent, tasks, workers), one_sequence, images)

    return rollouts_of


def waiting_rollout_func(
    client: Client, *, timeout_s: float | None = None, one_sequence: OneSequence = "refuse"
) -> RolloutFunc:
    """A `rollout_func` that waits for rollouts which others run: the trainer's prompts are their group ids.

    Args:
        client: of the server that the agents go through.
        timeout_s: seconds to wait for the next group; None = for ever.
        one_sequence: as in `rollout_func`.
    """

    def rollouts_of(prompts: Sequence[object], trainer: Trainer) -> Columns:
        group_ids = list(dict.fromkeys(str(prompt) for prompt in prompts))
        size = trainer.num_generations
        found: dict[str, list[Rollout]] = {}
        for rollout in client.trajectories(group_id=group_ids, group_size=size, timeout_s=timeout_s):
            found.setdefault(rollout.group_id or "", []).append(rollout)
        # A process may be given a part of a group, or one twice; each row is of another rollout of it.
        taken = dict.fromkeys(group_ids, 0)
        rows: list[Rollout] = []
        for prompt in map(str, prompts):
            rows.append(found[prompt][taken[prompt] % size])
            taken[prompt] += 1
        return _columns(rows, one_sequence, "refuse")

    return rollouts_of


def reward(
    prompts: Sequence[object], completions: Sequence[object], turnstile_reward: list[float | None], **_others: object
) -> list[float | None]:
    """The reward function for these rows: what the rollouts were finished with. None is left out of a group's mean."""
    del prompts, completions
    return turnstile_reward


def _groups(prompts: Sequence[object], size: int) -> list[tuple[int, int]]:
    """Number of its group, and place in it, for each prompt: equal neighbours, at most `size` of them."""
    groups: list[tuple[int, int]] = []
    for at, prompt in enumerate(prompts):
        group, index = groups[-1] if groups else (-1, size)
        is_same = at > 0 and prompt == prompts[at - 1] and index + 1 < size
        groups.append((group, index + 1) if is_same else (group + 1, 0))
    return groups


def _columns(rollouts: list[Rollout], one_sequence: OneSequence, images: Images) -> Columns:
    samples = {
        converted.origin.rollout_id: converted.sample
        for converted in convert(_each_once(rollouts), "trl", one_sequence=one_sequence, images=images)
    }
    stand_in = _untrained(next(iter(samples.values())))
    rows = [samples.get(rollout.rollout_id, stand_in) for rollout in rollouts]
    columns: Columns = {name: [row[name] for row in rows] for name in stand_in}
    columns["rollout_id"] = [rollout.rollout_id for rollout in rollouts]
    return columns


def _each_once(rollouts: list[Rollout]) -> list[Rollout]:
    return list({rollout.rollout_id: rollout for rollout in rollouts}.values())


def _untrained(sample: Fields) -> Fields:
    """A row for a rollout without an answer: TRL wants one for each prompt, and none that is empty."""
    completion = cast("list[int]", sample["completion_ids"])[:1]
    row: Fields = {"completion_ids": completion, "logprobs": [0.0], "env_mask": [0], "turnstile_reward": None}
    return sample | row
