"""Agents on rollouts of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnstile.integrations.running import Task, run, run_all


def _task(prompt: str, index: int = 0) -> Task:
    return Task(prompt, "g", index)


def test_an_agent_gets_its_rollout_and_its_prompt_and_leaves_a_reward(wired: Callable[..., Any]) -> None:
    seen: list[Any] = []

    def agent(rollout: Any, prompt: object) -> float:
        seen.append((rollout.rollout_id, prompt))
        return 0.5

    ran = run(wired().client, agent, _task("p", 3))
    assert seen == [(ran.rollout.rollout_id, "p")]
    assert (ran.rollout.reward, ran.rollout.group_id, ran.rollout.sample_index) == (0.5, "g", 3)
    assert (ran.rollout.status, ran.error) == ("completed", None)


def test_an_agent_that_raises_leaves_a_failed_rollout_without_a_reward(wired: Callable[..., Any]) -> None:
    def agent(rollout: Any, prompt: object) -> float:
        raise ZeroDivisionError("by nought")

    ran = run(wired().client, agent, _task("p"))
    assert (ran.rollout.status, ran.rollout.reward) == ("failed", None)
    assert ran.rollout.extra["turnstile.metadata"] == {"finished": {"error": "ZeroDivisionError: by nought"}}
    assert isinstance(ran.error, ZeroDivisionError)


def test_rollouts_come_in_the_order_of_their_tasks(wired: Callable[..., Any]) -> None:
    tasks = [_task(str(at), at) for at in range(5)]
    rollouts = run_all(wired().client, lambda rollout, prompt: float(str(prompt)), tasks, 3)
    assert [each.reward for each in rollouts] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_one_failing_agent_is_data_and_all_of_them_are_an_error(wired: Callable[..., Any]) -> None:
    def agent(rollout: Any, prompt: object) -> float:
        return 1.0 / float(str(prompt))

    client = wired().client
    assert [each.status for each in run_all(client, agent, [_task("0"), _task("1")], 2)] == ["failed", "completed"]
    with pytest.raises(ZeroDivisionError):
        run_all(client, agent, [_task("0"), _task("0")], 2)
