"""The demo's agent: an ordinary program on the OpenAI SDK that knows nothing of Turnstile or of training."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from openai import OpenAI
    from openai.types.chat import (
        ChatCompletionFunctionToolParam,
        ChatCompletionMessage,
        ChatCompletionMessageParam,
    )

SYSTEM = "You are a helpful assistant with a folder of files. Use the tools to work on files."
TASK = "Write a short note about the sea into sea.txt, look at the folder, read the note back, then tell me about it."
STEPS = ("write_file", "list_files", "read_file")
"""The tool that each of the first turns has to call; a model of 135 million parameters needs the help."""
MAX_TURNS = len(STEPS) + 1


def _tool(name: str, description: str, **properties: str) -> ChatCompletionFunctionToolParam:
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {each: {"type": "string", "description": text} for each, text in properties.items()},
        "required": list(properties),
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    _tool("write_file", "Write text into a file.", path="name of the file", content="the text"),
    _tool("read_file", "Read a file.", path="name of the file"),
    _tool("list_files", "List the files in the folder."),
]


class Folder:
    """The agent's world: a folder that its tools cannot leave."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def run(self, name: str, arguments: str) -> str:
        """Call a tool; whatever goes wrong is told to the model as the result."""
        try:
            given: dict[str, Any] = json.loads(arguments or "{}")
            match name:
                case "write_file":
                    content = str(given["content"])
                    self._file(str(given["path"])).write_text(content, encoding="utf-8")
                    return f"wrote {len(content)} characters"
                case "read_file":
                    return self._file(str(given["path"])).read_text(encoding="utf-8")
                case "list_files":
                    return "\n".join(sorted(file.name for file in self._root.iterdir())) or "(empty)"
                case _:
                    return f"error: there is no tool {name}"
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            return f"error: {type(wrong).__name__}: {wrong}"

    def _file(self, path: str) -> Path:
        file = (self._root / path).resolve()
        if file.parent != self._root or not path.strip():
            raise ValueError(f"{path!r} is not a file name in the folder")
        return file


def run_agent(client: OpenAI, model: str, folder: Folder, show: Callable[[str], None]) -> Iterator[str]:
    """Work on the task until the model answers without a call; yields a line for each step.

    Args:
        client: an OpenAI client, pointed anywhere.
        model: the model to ask for.
        folder: where the tools work.
        show: told the last answer's text as it streams in.
    """
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": TASK},
    ]
    for turn in range(MAX_TURNS):
        if turn >= len(STEPS):
            messages.append({"role": "assistant", "content": _answer_streaming(client, model, messages, show)})
            return
        answer = _ask_for_call(client, model, messages, STEPS[turn])
        messages.append(cast("ChatCompletionMessageParam", answer.model_dump(exclude_none=True)))
        for call in answer.tool_calls or []:
            assert call.type == "function"
            result = folder.run(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            yield f"{call.function.name}({call.function.arguments}) -> {result}"
        if not answer.tool_calls:
            messages.append({"role": "user", "content": "That was no tool call. Go on with the next step."})
            yield f"(no call: {answer.content!r})"


def _ask_for_call(
    client: OpenAI, model: str, messages: list[ChatCompletionMessageParam], tool: str
) -> ChatCompletionMessage:
    answer = client.chat.completions.create(
        model=model,
        messages=messages,
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": tool}},
        max_tokens=96,
        temperature=1.0,
    )
    return answer.choices[0].message


def _answer_streaming(
    client: OpenAI, model: str, messages: list[ChatCompletionMessageParam], show: Callable[[str], None]
) -> str:
    text = ""
    stream = client.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, tool_choice="none", max_tokens=64, temperature=1.0, stream=True
    )
    for chunk in stream:
        piece = chunk.choices[0].delta.content if chunk.choices else None
        if piece:
            show(piece)
            text += piece
    return text
