"""A coding agent on the OpenAI SDK: it reads, writes and tests files of a folder until it says that it is done.

It knows a base URL, a key and a folder, and nothing of how its calls are served:

OPENAI_BASE_URL=... OPENAI_API_KEY=... python agent.py FOLDER MODEL "Fix solution.py: ..."
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

MAX_TURNS = 8
MAX_TOKENS = 80
READ_CHARS = 400
RETRIES = 12
PATIENCE_S = 120.0
Tools = Mapping[str, Callable[..., str]]


def _declared(name: str, description: str, *parameters: str) -> dict[str, Any]:
    properties = {each: {"type": "string"} for each in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


DECLARED = (
    _declared("read_file", "Show a file.", "path"),
    _declared("write_file", "Replace a file.", "path", "content"),
    _declared("run_tests", "Run the tests."),
)


@dataclass(frozen=True)
class Ended:
    """How a conversation ended."""

    turns: int
    clean: bool
    """Whether the last answer was a plain one, neither cut off nor a call that is none."""


@dataclass(frozen=True)
class Model:
    """Which model to ask, and how."""

    base_url: str
    api_key: str
    name: str
    temperature: float = 1.0


def tools_of(folder: Path, run_tests: Callable[[Path], str]) -> Tools:
    """The tools, bound to a folder."""

    def inside(path: str) -> Path:
        found = (folder / path).resolve()
        if not found.is_relative_to(folder.resolve()):
            raise ValueError("outside")
        return found

    def read_file(path: str) -> str:
        return inside(path).read_text(encoding="utf-8")[:READ_CHARS]

    def write_file(path: str, content: str) -> str:
        inside(path).write_text(content, encoding="utf-8")
        return "ok"

    return {"read_file": read_file, "write_file": write_file, "run_tests": lambda: run_tests(folder)}


def call(tools: Tools, name: str, arguments: str) -> str:
    """What a tool says; a call that cannot be made is answered, too."""
    try:
        return tools[name](**json.loads(arguments))
    except KeyError:
        return "error: no such tool"
    except (TypeError, ValueError):
        return "error: bad arguments"
    except OSError:
        return "error: no such file"


@cache
def _connections() -> httpx.Client:
    """Shared by all agents of a process: making one costs more than a whole turn of a small model."""
    return httpx.Client(timeout=PATIENCE_S, trust_env=False, limits=httpx.Limits(max_connections=None))


def solve(model: Model, request: str, tools: Tools) -> Ended:
    """Talk until the model answers without a call, or MAX_TURNS have passed."""
    client = OpenAI(base_url=model.base_url, api_key=model.api_key, max_retries=RETRIES, http_client=_connections())
    messages: list[Any] = [{"role": "user", "content": request}]
    for turn in range(1, MAX_TURNS + 1):
        choice = client.chat.completions.create(
            model=model.name,
            messages=messages,
            tools=DECLARED,  # pyright: ignore[reportArgumentType]
            max_tokens=MAX_TOKENS,
            temperature=model.temperature,
        ).choices[0]
        said = choice.message
        if not said.tool_calls:
            return Ended(turn, clean=choice.finish_reason == "stop" and "<" not in (said.content or ""))
        messages.append(said.model_dump(exclude_none=True))
        for each in said.tool_calls:
            text = call(tools, each.function.name, each.function.arguments)
            messages.append({"role": "tool", "tool_call_id": each.id, "content": text})
    return Ended(MAX_TURNS, clean=False)


def main() -> None:
    """Run once, as a program."""
    from sandbox import Sandbox

    folder, name, request = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    reading = OpenAI()
    with Sandbox(1) as sandbox:
        tests = tools_of(folder, lambda where: sandbox.run(where, (where / "test_solution.py").read_text()).text)
        print(solve(Model(str(reading.base_url), reading.api_key, name), request, tests))


if __name__ == "__main__":
    main()
