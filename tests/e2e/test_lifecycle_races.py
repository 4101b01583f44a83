"""Ends, deletions and readers of rollouts that meet each other."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from turnstile.errors import CallerError, TurnstileError

YES = "Yes.<|im_end|>"
GONE = ("rollout_deleted", "rollout_not_found")


@pytest.fixture
def room(wire_up: Callable[..., Any], tools_folder: Path) -> Any:
    with wire_up(tools_folder, ("<|im_end|>",)) as room:
        yield room


def check(room: Any) -> str:
    """What `store check` says of a store that a server writes to."""
    command = [sys.executable, "-m", "turnstile.cli", "store", "check", str(room.store)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{done.returncode} {done.stdout}"


def test_of_several_ends_at_once_one_is_kept_and_the_others_are_told(room: Any) -> None:
    for _ in range(6):
        agent = room.agent()
        room.script(YES)
        agent.say("hi")
        told: list[float] = []

        def end(reward: float, agent: Any = agent, told: list[float] = told) -> str:
            try:
                agent.handle.finish(reward=reward)
            except CallerError as refused:
                return refused.code
            told.append(reward)
            return ""

        with ThreadPoolExecutor(4) as runners:
            codes = sorted(runners.map(end, (1.0, 2.0, 3.0, 4.0)))
        assert codes == ["", *["rollout_closed"] * 3]
        assert [agent.handle.trajectory().reward] == told


def test_each_answer_that_a_client_had_before_the_end_is_in_the_trajectory(room: Any, tmp_path: Path) -> None:
    room.script(*[YES] * 60)
    for _ in range(4):
        agent = room.agent()
        with ThreadPoolExecutor(5) as clients:
            saying = [clients.submit(agent.say, f"number {number}") for number in range(8)]
            agent.handle.finish(reward=1.0)
            said = [each.result() for each in saying]
        answered = {each.call_id for each in said if each.status == 200}
        assert {each.status for each in said} <= {200, 403, 409}
        kept = room.forest(agent).calls
        assert answered <= {call_id for call_id, state in kept.items() if state.committed is not None}
        assert answered <= {call.call_id for call in agent.exported(tmp_path).calls}
    assert check(room).startswith("0 ")


def test_a_rollout_that_is_deleted_while_it_is_read_is_whole_or_gone_and_never_comes_back(room: Any) -> None:
    room.script(*[YES] * 12)
    agents = [room.agent() for _ in range(12)]
    whole = {}
    for agent in agents:
        agent.say("hi")
        agent.handle.finish(reward=1.0)
        whole[agent.handle.rollout_id] = agent.handle.trajectory()

    def read(agent: Any) -> None:
        for _ in itertools.count():
            try:
                assert agent.handle.trajectory() == whole[agent.handle.rollout_id]
            except CallerError as gone:
                assert gone.code in GONE
                return

    def delete(agent: Any) -> int:
        try:
            return len(agent.handle.delete(unexported="delete"))
        except CallerError as gone:
            assert gone.code in GONE
            return 0

    with ThreadPoolExecutor(8) as threads:
        reading = [threads.submit(read, agent) for agent in agents[:4]]
        deleted = list(threads.map(delete, [each for agent in agents for each in (agent, agent)]))
        for each in reading:
            each.result()
    assert sum(deleted) == len(agents)
    for agent in agents:
        with pytest.raises(CallerError) as refused:
            agent.handle.trajectory()
        assert refused.value.code == "rollout_deleted"
        assert agent.say("hi").status in (401, 403, 404, 409, 410)
    assert check(room).startswith("0 ")


def test_two_prunes_at_once_beside_a_server_delete_each_old_rollout_once_and_no_open_one(room: Any) -> None:
    room.script(*[YES] * 13)
    closed, still_open = [room.agent() for _ in range(12)], room.agent()
    for agent in closed:
        agent.say("hi")
        agent.handle.finish(reward=1.0)
    still_open.say("hi")
    command = [sys.executable, "-m", "turnstile.cli", "store", "prune", str(room.store), "--older-than", "0s"]
    pruning = [
        subprocess.Popen([*command, "--unexported"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    told = "".join(each.communicate()[0] for each in pruning)
    assert [each.returncode for each in pruning] == [0, 0], told
    for agent in closed:
        assert told.count(f"deleted {agent.handle.rollout_id} attempt 1 ") == 1, told
        with contextlib.suppress(TurnstileError):
            pytest.fail(f"{agent.handle.trajectory().rollout_id} is still there")
    assert len(still_open.handle.trajectory().calls) == 1
    assert check(room).startswith("0 ")
