"""An agent that speaks OpenAI Responses to a server over the fake: what the cases have in common."""

from __future__ import annotations

import json
from typing import Any


class Responder:
    """An ordinary HTTP client on one rollout that sends items and reads items."""

    def __init__(self, agent: Any) -> None:
        agent.path = f"{agent.handle.openai_base_url}/responses"
        self.agent = agent

    def body(self, *items: dict[str, Any] | str, **fields: Any) -> bytes:
        """A bare text is a user message."""
        sent = [{"role": "user", "content": each} if isinstance(each, str) else each for each in items]
        return json.dumps({"model": "m", "input": sent, **fields}).encode()

    def say(self, *items: dict[str, Any] | str, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        return self.agent.post(self.body(*items, **fields), headers)


def response(said: Any) -> dict[str, Any]:
    """The response object, of a whole answer or as a stream's last event has it."""
    return said.events[-1]["response"] if said.is_stream else said.json


def items(said: Any) -> list[dict[str, Any]]:
    """Its output items, as a client sends them back."""
    return response(said)["output"]


def texts(said: Any) -> str:
    return "".join(part["text"] for item in items(said) if item["type"] == "message" for part in item["content"])


def names(said: Any) -> list[str]:
    """The events of a stream, deltas of one item as one."""
    found = [event["type"].removeprefix("response.") for event in said.events]
    return [name for at, name in enumerate(found) if not at or name != found[at - 1] or not name.endswith("delta")]


def output(call: dict[str, Any], text: str) -> dict[str, Any]:
    """What a tool said."""
    kind = "custom_tool_call_output" if call["type"] == "custom_tool_call" else "function_call_output"
    return {"type": kind, "call_id": call["call_id"], "output": text}


def tool(name: str, **properties: str) -> dict[str, Any]:
    """A function whose parameters are named with their JSON types."""
    schema = {"type": "object", "properties": {each: {"type": kind} for each, kind in properties.items()}}
    return {"type": "function", "name": name, "parameters": schema}
