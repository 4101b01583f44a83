"""An ordinary agent on the OpenAI SDK: what it does knows nothing of Turnstile, tokens or training.

    OPENAI_BASE_URL=http://127.0.0.1:7000/r/my-first-rollout/v1 OPENAI_API_KEY=any python examples/agent.py

The SDK reads both variables itself. Whatever this file is replaced by, only the address has to be given. Nothing but
the lines that it ends with, for whoever tries this, is about Turnstile.
"""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime

from openai import OpenAI

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "now",
            "description": "The present time in UTC.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
]


def main() -> None:
    """One tool call, its result, and an answer."""
    client = OpenAI(api_key=os.environ.get("OPENAI_API_KEY", "none"))
    model = client.models.list().data[0].id
    messages = [{"role": "user", "content": "What time is it? Use the tool."}]
    answer = client.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, tool_choice="required", max_tokens=48
    )
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": datetime.now(UTC).isoformat()}
        for call in message.tool_calls or []
    ]
    # The same tools in every call: they stand in the prompt, so other tools would begin a new tree.
    stream = client.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, tool_choice="none", max_tokens=24, stream=True
    )
    for chunk in stream:
        sys.stdout.write((chunk.choices[0].delta.content or "") if chunk.choices else "")
    sys.stdout.write("\n")
    tell_what_next(str(client.base_url))


def tell_what_next(base_url: str) -> None:
    """What to run to see what was recorded, if the address names a rollout."""
    rollout = re.search(r"/r/([^/]+)/", base_url)
    if rollout:
        print(
            "\nNext, with the directory that `turnstile serve --store` was given:\n"
            f"  turnstile export runs -o {rollout[1]}.jsonl --rollout {rollout[1]}\n"
            f"  turnstile validate {rollout[1]}.jsonl\n"
            "  turnstile drift runs"
        )


if __name__ == "__main__":
    main()
