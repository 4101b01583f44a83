"""verl's agent loop on agents that run through Turnstile. docs/train/verl.md has the settings that it needs.

Source: verl/experimental/agent_loop/agent_loop.py and verl/trainer/ppo/v1/agent_loop_tq.py of the 0.9.1 wheel.
"""

from __future__ import annotations

import asyncio
import importlib
import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, cast

from turnstile.client import Client
from turnstile.errors import CallerError
from turnstile.integrations.running import RunAgent, Task, run
from turnstile.trajectory.converters.conversion import convert
from turnstile.trajectory.format import Fields, Rollout

Prompt: TypeAlias = Mapping[str, object]
"""The columns of the data set's row, such as `raw_prompt`, and verl's `sampling_params`."""


def agent_loop(url: str, run_agent: RunAgent[Prompt], *, admin_key: str = "", workers: int = 64) -> type:
    """A class for verl's agent loop: each of its runs is one rollout of an agent through a Turnstile server.

    Put the answer into a variable of a module of yours, and name that as `_target_` in the file of
    `actor_rollout_ref.rollout.agent.agent_loop_config_path`. A rollout with several sequences gives several outputs,
    for which the v1 trainer has room; one without any answer gives none.

    Args:
        url: where `turnstile serve` listens, as the workers reach it.
        run_agent: runs one agent: `run_agent(rollout, prompt)` points it at `rollout.openai_base_url` with
            `rollout.agent_key`, and answers the reward, or None for verl's own reward loop.
        admin_key: the server's --admin-key; TURNSTILE_ADMIN_KEY if empty.
        workers: agents that one process runs at once.

    Raises: ImportError without verl.
    """
    verl = importlib.import_module("verl.experimental.agent_loop.agent_loop")
    client = Client(url, admin_key=admin_key)
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="agent")

    async def run_loop(self: Any, sampling_params: dict[str, object], **columns: object) -> object:  # noqa: ANN401
        task = Task(
            prompt={**columns, "sampling_params": sampling_params},
            group_id=_text(columns.get("uid")),
            sample_index=int(cast(int, columns.get("session_id", 0))),
        )
        work = asyncio.get_running_loop().run_in_executor(
            pool, lambda: _run_one(client, cast("RunAgent[object]", run_agent), task)
        )
        rollout = await work
        room = (int(self.rollout_config.prompt_length), int(self.rollout_config.response_length))
        outputs = [verl.AgentLoopOutput(**fields) for fields in _outputs(client, rollout, room)]
        # The trainer before v1 takes an output and no list.
        return outputs[0] if len(outputs) == 1 else outputs

    return type("TurnstileAgentLoop", (verl.AgentLoopBase,), {"run": run_loop, "__doc__": agent_loop.__doc__})


def _run_one(client: Client, run_agent: RunAgent[object], task: Task) -> Rollout:
    ran = run(client, run_agent, task)
    if ran.error is not None:
        # verl settles the failure of a run by itself, and tells it.
        raise ran.error
    return ran.rollout


def _text(uid: object) -> str | None:
    return None if uid is None else str(uid)


def _outputs(client: Client, rollout: Rollout, room: tuple[int, int]) -> list[Fields]:
    """The arguments of an `AgentLoopOutput` for each sequence; none if nothing can be trained."""
    prompt_length, response_length = room
    options = {"prompt_length": prompt_length, "max_length": prompt_length + response_length}
    try:
        (converted,) = convert([rollout], "verl", **options)
    except CallerError as refused:
        if refused.code == "nothing_to_convert":
            return []
        raise
    outputs = cast("list[Fields]", converted.sample["outputs"])
    return [_with_images(client, rollout.rollout_id, fields) for fields in outputs]


def _with_images(client: Client, rollout_id: str, fields: Fields) -> Fields:
    named = cast("dict[str, list[Fields]]", fields.get("multi_modal_data", {})).get("images", [])
    if not named:
        return fields
    pillow = importlib.import_module("PIL.Image")
    images = [pillow.open(io.BytesIO(client.media(rollout_id, str(each["sha256"])))) for each in named]
    return fields | {"multi_modal_data": {"images": images}}
