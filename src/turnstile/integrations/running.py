"""An agent on a rollout of its own, run to its end and read back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from turnstile.client import Client, RolloutHandle
from turnstile.trajectory.format import Rollout

PromptT = TypeVar("PromptT")
RunAgent = Callable[[RolloutHandle, PromptT], float | None]
"""Runs an agent on a rollout, with what its trainer calls a prompt; answers the reward, None for unscored."""


class Task(msgspec.Struct, frozen=True):
    """One rollout to be made."""

    prompt: object
    group_id: str | None
    sample_index: int


class Ran(msgspec.Struct, frozen=True):
    """What came of it."""

    rollout: Rollout
    error: Exception | None = None
    """What the agent raised; its rollout is `failed` and unscored then."""


def run(client: Client, run_agent: RunAgent[object], task: Task) -> Ran:
    """Run one agent. Raises: TurnstileError if the server cannot be asked."""
    error: Exception | None = None
    with client.rollout(group_id=task.group_id, sample_index=task.sample_index) as handle:
        try:
            reward = run_agent(handle, task.prompt)
        except Exception as raised:  # noqa: BLE001 - an agent is anybody's program, and one that fails is data
            error = raised
            handle.finish(status="failed", metadata={"error": f"{type(raised).__name__}: {raised}"[:500]})
        else:
            handle.finish(reward=reward)
    return Ran(handle.trajectory(), error)


def run_all(client: Client, run_agent: RunAgent[object], tasks: list[Task], workers: int) -> list[Rollout]:
    """Run agents side by side; their rollouts in the order of the tasks.

    Raises: what the first agent raised, if every one of them failed: then it is no accident.
    """

    def run_one(task: Task) -> Ran:
        return run(client, run_agent, task)

    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="agent") as pool:
        ran = list(pool.map(run_one, tasks))
    errors = [each.error for each in ran if each.error is not None]
    if errors and len(errors) == len(ran):
        raise errors[0]
    return [each.rollout for each in ran]
