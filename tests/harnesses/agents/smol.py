"""The task by smolagents: `smol.py tools|code BASE_URL KEY MODEL TASK`. Runs in the library's environment."""

from __future__ import annotations

import subprocess
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool


@tool
def shell(command: str) -> str:
    """Run a command in the repository.

    Args:
        command: what to run.
    """
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return f"{done.stdout}{done.stderr}"


kind, base_url, key, model, task = sys.argv[1:]
agent = (CodeAgent if kind == "code" else ToolCallingAgent)(
    tools=[shell], model=OpenAIServerModel(model_id=model, api_base=f"{base_url}/v1", api_key=key), max_steps=8
)
print(agent.run(task))
