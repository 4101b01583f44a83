"""The task by openai-agents: `openai_agents.py chat|responses BASE_URL KEY MODEL TASK`. Runs in the library's own
environment. The program's name must not be `agents`, which is the library's."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI


@function_tool
def shell(command: str) -> str:
    """Run a command in the repository."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}"


async def main(dialect: str, base_url: str, key: str, model: str, task: str) -> None:
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{base_url}/v1", api_key=key)
    kind = OpenAIChatCompletionsModel if dialect == "chat" else OpenAIResponsesModel
    agent = Agent(name="repair", instructions="Be brief.", tools=[shell], model=kind(model=model, openai_client=client))
    running = Runner.run_streamed(agent, task, max_turns=12)
    async for _ in running.stream_events():
        pass
    print(running.final_output)


asyncio.run(main(*sys.argv[1:]))
