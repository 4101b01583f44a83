"""A computer-use agent on the OpenAI SDK: it looks at a page, clicks, types, and says when it is done.

It knows a base URL, a key and a page, and nothing of how its calls are served:

OPENAI_BASE_URL=... OPENAI_API_KEY=... python -m vision.agent MODEL COLOUR [CODE]
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
from openai import OpenAI

from vision.computer import Computer
from vision.screen import SIDE

MAX_TURNS = 4
MAX_TOKENS = 24
RETRIES = 12
PATIENCE_S = 300.0
OMITTED = "[image omitted]"
NO_PLACE = "no such place"
NO_CALL = "error: bad arguments"


def _declared(name: str, description: str, **types: str) -> dict[str, Any]:
    properties = {each: {"type": kind} for each, kind in types.items()}
    schema = {"type": "object", "properties": properties, "required": list(types)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


DECLARED = (
    _declared("click", f"Click in column x and row y, both 0 to {SIDE - 1}.", x="integer", y="integer"),
    _declared("type", "Type text into the field that has the focus.", text="string"),
    _declared("done", "Say that all is done."),
)


@dataclass(frozen=True)
class Model:
    """Which model to ask, and how."""

    base_url: str
    api_key: str
    name: str
    temperature: float = 1.0


@dataclass(frozen=True)
class Window:
    """Which screenshots stay in the conversation."""

    screenshots: int = 0
    """The newest so many; 0 = all: a context that grows."""


@dataclass(frozen=True)
class Ended:
    """How an episode ended."""

    turns: int
    is_done: bool
    """Whether the agent said so itself."""


@cache
def _connections() -> httpx.Client:
    """Shared by all agents of a process: making one costs more than a whole turn of a small model."""
    return httpx.Client(timeout=PATIENCE_S, trust_env=False, limits=httpx.Limits(max_connections=None))


def work(model: Model, request: str, computer: Computer, window: Window = Window()) -> Ended:
    """Act on a page until the model calls `done`, calls nothing, or MAX_TURNS have passed."""
    client = OpenAI(base_url=model.base_url, api_key=model.api_key, max_retries=RETRIES, http_client=_connections())
    messages: list[Any] = [_shown([{"type": "text", "text": request}], computer)]
    for turn in range(1, MAX_TURNS + 1):
        said = (
            client.chat.completions.create(
                model=model.name,
                messages=messages,
                tools=DECLARED,  # pyright: ignore[reportArgumentType]
                max_tokens=MAX_TOKENS,
                temperature=model.temperature,
            )
            .choices[0]
            .message
        )
        if not said.tool_calls or any(each.function.name == "done" for each in said.tool_calls):
            return Ended(turn, is_done=bool(said.tool_calls))
        if turn == MAX_TURNS:
            for each in said.tool_calls:
                act(computer, each.function.name, each.function.arguments)
            break
        messages.append(said.model_dump(exclude_none=True))
        for each in said.tool_calls:
            text = act(computer, each.function.name, each.function.arguments)
            messages.append({"role": "tool", "tool_call_id": each.id, "content": text})
        messages.append(_shown([], computer))
        _forget(messages, window)
    return Ended(MAX_TURNS, is_done=False)


def act(computer: Computer, name: str, arguments: str) -> str:
    """Do what a call says; one that cannot be done is answered, too."""
    try:
        wanted = json.loads(arguments)
        if name == "type":
            computer.type(str(wanted["text"]))
            return "ok"
        if name != "click":
            return NO_CALL
        column, row = int(wanted["x"]), int(wanted["y"])
    except (KeyError, TypeError, ValueError):
        return NO_CALL
    if not (0 <= column < SIDE and 0 <= row < SIDE):
        return NO_PLACE
    computer.click(column, row)
    return "ok"


def _shown(parts: list[Any], computer: Computer) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(computer.screenshot()).decode()}"
    return {"role": "user", "content": [*parts, {"type": "image_url", "image_url": {"url": url}}]}


def _forget(messages: list[Any], window: Window) -> None:
    """Put words in the place of screenshots that are out of the window."""
    if not window.screenshots:
        return
    shown = [
        (message["content"], at)
        for message in messages
        if message["role"] == "user"
        for at, part in enumerate(message["content"])
        if part["type"] == "image_url"
    ]
    for parts, at in shown[: -window.screenshots]:
        parts[at] = {"type": "text", "text": OMITTED}


def main() -> None:
    """Run once, as a program."""
    from vision.computer import open_computers
    from vision.screen import Task

    name, colour, code = sys.argv[1], sys.argv[2], (sys.argv[3] if len(sys.argv) > 3 else "")
    reading = OpenAI()
    computers, said = open_computers("auto", 1)
    print(said)
    task = Task(1, colour, code)
    with computers.computer(task) as computer:
        print(work(Model(str(reading.base_url), reading.api_key, name), task.instruction(), computer))
        print(f"the page was left in stage {computer.stage()} of 2")
    computers.close()


if __name__ == "__main__":
    main()
