"""An agent for each dialect: it keeps its history in its dialect's own form and sends all of it at each turn.

All of them say the same: a system prompt, one task, then answers with thinking, text and one tool call, each followed
by the tool's result. What a dialect gives its clients to bring back is brought back: signatures, item ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from materials import MODEL, TOOL

Json = dict[str, Any]

MAX_TOKENS = 512
_OFFERED = (
    "write_file", "edit_file", "list_files", "search_text", "run_command", "fetch_page", "note_down", "ask_user",
)  # fmt: skip
"""Tools beside the one that the model calls."""


def _functions() -> list[Json]:
    offered = []
    for name in _OFFERED:
        words = name.replace("_", " ")
        members = {
            "path": {"type": "string", "description": f"Where to {words}, from the root of the repository."},
            "text": {"type": "string", "description": f"What is needed to {words}; left out where nothing is."},
            "limit": {"type": "integer", "minimum": 1, "description": "How much of it at most."},
        }
        schema = {"type": "object", "properties": members, "required": ["path"], "additionalProperties": False}
        offered.append({"name": name, "description": f"Use this to {words}. " * 6, "parameters": schema})
    return [*offered, TOOL["function"]]


FUNCTIONS = _functions()


class Agent(Protocol):
    """One conversation, as a client of one dialect leads it."""

    def path(self, *, stream: bool) -> str:
        """Where requests go, behind the rollout."""

    def body(self, *, stream: bool) -> Json:
        """The next request."""

    def hear(self, answer: Json, result: str) -> None:
        """Take a whole answer in, and run its tool."""

    def hear_stream(self, events: Sequence[Json], result: str) -> None:
        """The same of a streamed answer."""


class ChatAgent:
    """OpenAI chat completions, with the thinking sent back as open models' clients do."""

    def __init__(self, system: str, task: str) -> None:
        self._messages: list[Json] = [{"role": "system", "content": system}, {"role": "user", "content": task}]
        self._tools = [{"type": "function", "function": function} for function in FUNCTIONS]

    def path(self, *, stream: bool) -> str:
        return "/v1/chat/completions"

    def body(self, *, stream: bool) -> Json:
        streamed = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        settings = {"model": MODEL, "temperature": 1.0, "max_tokens": MAX_TOKENS, **streamed}
        return {**settings, "messages": self._messages, "tools": self._tools}

    def hear(self, answer: Json, result: str) -> None:
        self._go_on(answer["choices"][0]["message"], result)

    def hear_stream(self, events: Sequence[Json], result: str) -> None:
        deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
        pieces = [call for delta in deltas for call in delta.get("tool_calls") or ()]
        function = {"name": pieces[0]["function"]["name"], "arguments": ""}
        function["arguments"] = "".join(piece["function"].get("arguments") or "" for piece in pieces)
        message = {
            name: "".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning_content", "content")
        }
        calls = [{"id": pieces[0]["id"], "type": "function", "function": function}]
        self._go_on({**message, "tool_calls": calls}, result)

    def _go_on(self, message: Json, result: str) -> None:
        kept = {name: message.get(name) for name in ("reasoning_content", "content", "tool_calls")}
        (call,) = message["tool_calls"]
        self._messages.append({"role": "assistant", **kept})
        self._messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


class ResponsesAgent:
    """OpenAI Responses as Codex speaks it: nothing stored, every item sent back as it came."""

    def __init__(self, system: str, task: str) -> None:
        self._system = system
        self._items: list[Json] = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": task}]}
        ]
        self._tools = [{"type": "function", **function, "strict": False} for function in FUNCTIONS]

    def path(self, *, stream: bool) -> str:
        return "/v1/responses"

    def body(self, *, stream: bool) -> Json:
        settings = {"model": MODEL, "temperature": 1.0, "max_output_tokens": MAX_TOKENS, "store": False}
        form = {"include": ["reasoning.encrypted_content"], "stream": stream}
        return {**settings, **form, "instructions": self._system, "input": self._items, "tools": self._tools}

    def hear(self, answer: Json, result: str) -> None:
        self._items += answer["output"]
        (call,) = (item for item in answer["output"] if item["type"] == "function_call")
        self._items.append({"type": "function_call_output", "call_id": call["call_id"], "output": result})

    def hear_stream(self, events: Sequence[Json], result: str) -> None:
        self.hear(events[-1]["response"], result)


class AnthropicAgent:
    """Anthropic Messages as Claude Code speaks it: blocks throughout, and a cache mark that moves."""

    def __init__(self, system: str, task: str) -> None:
        mark = {"cache_control": {"type": "ephemeral"}}
        self._system: list[Json] = [{"type": "text", "text": system, **mark}]
        self._messages: list[Json] = [{"role": "user", "content": [{"type": "text", "text": task, **mark}]}]
        self._tools = [
            {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
            for one in FUNCTIONS
        ]

    def path(self, *, stream: bool) -> str:
        return "/v1/messages"

    def body(self, *, stream: bool) -> Json:
        settings = {"model": MODEL, "temperature": 1.0, "max_tokens": MAX_TOKENS, "stream": stream}
        return {**settings, "system": self._system, "messages": self._messages, "tools": self._tools}

    def hear(self, answer: Json, result: str) -> None:
        (call,) = (block for block in answer["content"] if block["type"] == "tool_use")
        for block in self._messages[-1]["content"]:
            block.pop("cache_control", None)
        self._messages.append({"role": "assistant", "content": answer["content"]})
        shown = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": result}]}
        self._messages.append({"role": "user", "content": [{**shown, "cache_control": {"type": "ephemeral"}}]})

    def hear_stream(self, events: Sequence[Json], result: str) -> None:
        blocks: list[Json] = []
        written = ""
        for event in events:
            match event:
                case {"type": "content_block_start", "content_block": block}:
                    blocks.append({**block})
                    written = ""
                case {"delta": {"type": "input_json_delta", "partial_json": piece}}:
                    written += piece
                case {"delta": {"type": "text_delta" | "thinking_delta" | "signature_delta" as kind} as delta}:
                    name = kind.removesuffix("_delta")
                    blocks[-1][name] += delta[name]
                case {"type": "content_block_stop"} if written:
                    blocks[-1]["input"] = json.loads(written)
                case _:
                    pass
        self.hear({"content": blocks}, result)


class GeminiAgent:
    """Gemini's generateContent as gemini-cli speaks it: texts of a stream that follow one another are put together."""

    def __init__(self, system: str, task: str) -> None:
        self._system = {"parts": [{"text": system}]}
        self._contents: list[Json] = [{"role": "user", "parts": [{"text": task}]}]
        self._tools = [
            {
                "functionDeclarations": [
                    {
                        "name": one["name"],
                        "description": one["description"],
                        "parametersJsonSchema": one["parameters"],
                    }
                    for one in FUNCTIONS
                ]
            }
        ]

    def path(self, *, stream: bool) -> str:
        return f"/v1beta/models/{MODEL}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"

    def body(self, *, stream: bool) -> Json:
        settings = {"temperature": 1.0, "maxOutputTokens": MAX_TOKENS, "thinkingConfig": {"includeThoughts": True}}
        said = {"systemInstruction": self._system, "contents": self._contents}
        return {**said, "tools": self._tools, "generationConfig": settings}

    def hear(self, answer: Json, result: str) -> None:
        self.hear_stream([answer], result)

    def hear_stream(self, events: Sequence[Json], result: str) -> None:
        parts: list[Json] = []
        for part in self._parts_of(events):
            if parts and "text" in part and "text" in parts[-1] and part.get("thought") == parts[-1].get("thought"):
                parts[-1] = {**parts[-1], **part, "text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        (call,) = (part["functionCall"] for part in parts if "functionCall" in part)
        shown = {"id": call.get("id"), "name": call["name"], "response": {"output": result}}
        self._contents.append({"role": "model", "parts": parts})
        self._contents.append({"role": "user", "parts": [{"functionResponse": shown}]})

    def _parts_of(self, events: Iterable[Json]) -> list[Json]:
        return [
            part
            for event in events
            for candidate in event.get("candidates") or ()
            for part in (candidate.get("content") or {}).get("parts") or ()
        ]


AGENTS: dict[str, type[Agent]] = {
    "chat": ChatAgent,
    "responses": ResponsesAgent,
    "anthropic": AnthropicAgent,
    "gemini": GeminiAgent,
}
"""By a word of the dialect's name in records."""


def agent_for(dialect: str) -> type[Agent]:
    """The agent of a dialect. Raises: LookupError if there is none yet."""
    for word, agent in AGENTS.items():
        if word in dialect:
            return agent
    raise LookupError(f"benchmarks/agents.py has no agent that speaks {dialect}")
