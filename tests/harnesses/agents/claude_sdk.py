"""The task by claude-agent-sdk: `claude_sdk.py TASK`; all else is in the environment, as for Claude Code."""

from __future__ import annotations

import asyncio
import os
import sys

from claude_agent_sdk import ClaudeAgentOptions, query


async def main(task: str) -> None:
    names = [name for name in os.environ if name.startswith("ANTHROPIC_")]
    options = ClaudeAgentOptions(
        allowed_tools=["Bash", "Edit", "Read"],
        permission_mode="acceptEdits",
        env={name: os.environ[name] for name in names},
    )
    async for message in query(prompt=task, options=options):
        print(message)


asyncio.run(main(*sys.argv[1:]))
