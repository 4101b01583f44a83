"""The task by pydantic-ai: `pydantic_ai_agent.py chat|responses|anthropic|gemini BASE_URL KEY MODEL TASK`.

Runs in the library's own environment.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys

from pydantic_ai import Agent
from pydantic_ai.models import Model


def model_of(dialect: str, base_url: str, key: str, name: str) -> Model:
    """Only the library's part that is needed is imported: each of them takes seconds."""
    match dialect:
        case "chat":
            from pydantic_ai.models.openai import OpenAIChatModel
            from pydantic_ai.providers.openai import OpenAIProvider

            return OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{base_url}/v1", api_key=key))
        case "responses":
            from pydantic_ai.models.openai import OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            return OpenAIResponsesModel(name, provider=OpenAIProvider(base_url=f"{base_url}/v1", api_key=key))
        case "anthropic":
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            return AnthropicModel(name, provider=AnthropicProvider(base_url=base_url, api_key=key))
        case _:
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            return GoogleModel(name, provider=GoogleProvider(base_url=base_url, api_key=key))


async def main(dialect: str, base_url: str, key: str, name: str, task: str) -> None:
    agent = Agent(model_of(dialect, base_url, key, name), system_prompt="Be brief.")

    @agent.tool_plain
    def shell(command: str) -> str:
        """Run a command in the repository."""
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        return f"{done.stdout}{done.stderr}"

    async with agent.iter(task) as steps:
        async for node in steps:
            if Agent.is_model_request_node(node):
                async with node.stream(steps.ctx) as stream:
                    async for _ in stream:
                        pass
    assert steps.result is not None
    print(steps.result.output)


asyncio.run(main(*sys.argv[1:]))
