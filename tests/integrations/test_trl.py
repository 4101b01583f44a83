"""Columns for TRL, without TRL; with it, tests/trainers/test_trl.py."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from turnstile.errors import CallerError, TurnstileError
from turnstile.integrations.trl import reward, rollout_func, waiting_rollout_func

TRAINER = SimpleNamespace(num_generations=2)


def _agent(room: Any, turns: int = 2) -> Callable[[Any, object], float | None]:
    """Says as many things as turns; the prompt is the reward, or an exception."""

    def agent(rollout: Any, prompt: object) -> float | None:
        if prompt == "fails":
            raise ZeroDivisionError
        messages: list[Any] = []
        for turn in range(0 if prompt == "silent" else turns):
            messages.append({"role": "user", "content": f"say {turn}"})
            answer = room.http.post(
                f"{rollout.openai_base_url}/chat/completions",
                json={"model": "m", "messages": messages, "temperature": 1.0},
                headers={"authorization": f"Bearer {rollout.agent_key}"},
            )
            messages.append(answer.json()["choices"][0]["message"])
        return None if prompt == "silent" else float(str(prompt))

    return agent


def test_each_prompt_is_a_row_and_equal_neighbours_are_a_group(wired: Callable[..., Any]) -> None:
    room = wired()
    answers = room.script(*["Yes.<|im_end|>"] * 8)
    columns = rollout_func(room.client, _agent(room), workers=1)(["1", "1", "2", "2"], TRAINER)
    assert columns["turnstile_reward"] == [1.0, 1.0, 2.0, 2.0]
    rollouts = [room.client.trajectory(str(each)) for each in columns["rollout_id"]]
    assert [each.sample_index for each in rollouts] == [0, 1, 0, 1]
    assert [each.group_id == rollouts[0].group_id for each in rollouts] == [True, True, False, False]
    for row, rollout in enumerate(rollouts):
        (sequence,) = rollout.sequences
        assert columns["prompt_ids"][row] + columns["completion_ids"][row] == sequence.token_ids.tolist()
        assert sum(columns["env_mask"][row]) == 2 * len(answers[0])
        assert len(columns["logprobs"][row]) == len(columns["completion_ids"][row])


def test_more_equal_prompts_than_a_group_has_are_two_groups(wired: Callable[..., Any]) -> None:
    room = wired()
    room.script(*["Yes.<|im_end|>"] * 4)
    columns = rollout_func(room.client, _agent(room, 1), workers=1)(["1"] * 4, TRAINER)
    groups = [room.client.trajectory(str(each)).group_id for each in columns["rollout_id"]]
    assert (groups[0] == groups[1], groups[1] == groups[2], groups[2] == groups[3]) == (True, False, True)


def test_a_rollout_without_an_answer_is_a_row_of_which_nothing_is_trained(wired: Callable[..., Any]) -> None:
    room = wired()
    room.script("Yes.<|im_end|>")
    columns = rollout_func(room.client, _agent(room, 1), workers=1)(["1", "silent"], TRAINER)
    assert columns["turnstile_reward"] == [1.0, None]
    assert (columns["env_mask"][1], columns["logprobs"][1], len(columns["completion_ids"][1])) == ([0], [0.0], 1)


def test_an_agent_that_fails_is_an_unscored_row(wired: Callable[..., Any]) -> None:
    room = wired()
    room.script("Yes.<|im_end|>")
    columns = rollout_func(room.client, _agent(room, 1), workers=1)(["1", "fails"], TRAINER)
    assert columns["turnstile_reward"] == [1.0, None]


def test_if_nothing_was_sampled_at_all_the_step_is_refused(wired: Callable[..., Any]) -> None:
    with pytest.raises(CallerError) as refused:
        rollout_func(wired().client, _agent(wired()))(["silent", "silent"], TRAINER)
    assert refused.value.code == "nothing_to_convert"


def test_groups_that_others_run_are_waited_for_by_their_ids(wired: Callable[..., Any]) -> None:
    room = wired()
    room.script(*["Yes.<|im_end|>"] * 4)
    agent = _agent(room, 1)
    for group_id in ("g-a", "g-b"):
        for index in range(2):
            handle = room.client.rollout(group_id=group_id)
            handle.finish(reward=agent(handle, index))
    columns = waiting_rollout_func(room.client, timeout_s=5.0)(["g-b", "g-b", "g-a", "g-a"], TRAINER)
    groups = [room.client.trajectory(str(each)).group_id for each in columns["rollout_id"]]
    assert (groups, columns["turnstile_reward"]) == (["g-b", "g-b", "g-a", "g-a"], [0.0, 1.0, 0.0, 1.0])
    with pytest.raises(TurnstileError) as waited:
        waiting_rollout_func(room.client, timeout_s=0.3)(["g-c", "g-c"], TRAINER)
    assert waited.value.code == "groups_unfinished"


def test_the_reward_function_hands_on_what_the_rollouts_were_finished_with() -> None:
    assert reward(["p"], ["c"], turnstile_reward=[None, 1.0], rollout_id=["r", "s"], trainer_state=None) == [None, 1.0]
