"""The computer-use agent as its server sees it: what it shows, what it does with calls, and when it ends."""

from __future__ import annotations

import ast
import base64
import json
from pathlib import Path
from typing import Any

import pytest

import vision.agent
from vision.agent import Ended, Model, Window, work
from vision.computer import Drawn
from vision.screen import SIDE, Desk, Task, png

TASK = Task(11, "red", "")


def place(desk: Desk, name: str) -> str:
    cell = desk.controls()[name]
    return json.dumps({"x": cell % SIDE, "y": cell // SIDE})


def shots(request: dict[str, Any]) -> list[bytes]:
    return [
        base64.b64decode(part["image_url"]["url"].partition(",")[2])
        for message in request["messages"]
        if message["role"] == "user"
        for part in message["content"]
        if part["type"] == "image_url"
    ]


def texts(request: dict[str, Any]) -> list[str]:
    return [
        part["text"]
        for message in request["messages"]
        if message["role"] == "user"
        for part in message["content"]
        if part["type"] == "text"
    ]


def model(scripted: Any) -> Model:
    return Model(scripted.url, "the-key", "tiny")


def test_it_presses_confirms_and_says_that_it_is_done_with_a_new_screenshot_each_turn(scripted: Any) -> None:
    computer, twin, screens = Drawn(TASK), Desk(TASK), []
    for name in ("red", "ok"):
        screens.append(png(twin.pixels()))
        scripted.calls("click", place(twin, name))
        cell = twin.controls()[name]
        twin.click(cell % SIDE, cell // SIDE)
    screens.append(png(twin.pixels()))
    scripted.calls("done", "{}")
    ended = work(model(scripted), TASK.instruction(), computer)
    assert (ended, computer.stage()) == (Ended(turns=3, is_done=True), 2)
    assert [shots(each) for each in scripted.requests] == [screens[:1], screens[:2], screens]
    assert texts(scripted.requests[0]) == ["Press red, then OK."]
    assert scripted.keys == ["Bearer the-key"] * 3
    assert [each["function"]["name"] for each in scripted.requests[0]["tools"]] == ["click", "type", "done"]


def test_a_window_keeps_the_newest_screenshots_and_words_in_the_place_of_the_others(scripted: Any) -> None:
    for _ in range(4):
        scripted.calls("type", '{"text": "4"}')
    work(model(scripted), TASK.instruction(), Drawn(TASK), Window(2))
    assert [len(shots(each)) for each in scripted.requests] == [1, 2, 2, 2]
    assert [texts(each).count("[image omitted]") for each in scripted.requests] == [0, 0, 1, 2]


def test_a_context_that_grows_keeps_all(scripted: Any) -> None:
    for _ in range(4):
        scripted.calls("type", '{"text": "4"}')
    ended = work(model(scripted), TASK.instruction(), Drawn(TASK))
    assert [len(shots(each)) for each in scripted.requests] == [1, 2, 3, 4]
    assert ended == Ended(turns=4, is_done=False)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("click", '{"x": 4, "y": 0}', "no such place"),
        ("click", '{"x": -1, "y": 0}', "no such place"),
        ("click", '{"x": 1}', "error: bad arguments"),
        ("click", "[1, 2]", "error: bad arguments"),
        ("click", "{", "error: bad arguments"),
        ("drag", "{}", "error: bad arguments"),
        ("type", "{}", "error: bad arguments"),
        ("type", '{"text": "4"}', "ok"),
    ],
)
def test_a_call_that_cannot_be_done_is_answered(scripted: Any, name: str, arguments: str, said: str) -> None:
    computer = Drawn(TASK)
    scripted.calls(name, arguments)
    scripted.says("I give up.")
    ended = work(model(scripted), TASK.instruction(), computer)
    results = [each["content"] for each in scripted.requests[-1]["messages"] if each["role"] == "tool"]
    assert (results, ended, computer.stage()) == ([said], Ended(turns=2, is_done=False), 0)


def test_the_last_turn_acts_too(scripted: Any) -> None:
    computer, twin = Drawn(TASK), Desk(TASK)
    for _ in range(3):
        scripted.calls("type", '{"text": "4"}')
    scripted.calls("click", place(twin, "red"))
    ended = work(model(scripted), TASK.instruction(), computer)
    assert (ended, computer.stage()) == (Ended(turns=4, is_done=False), 1)


@pytest.mark.parametrize("name", ["agent.py", "computer.py", "chromium.py", "screen.py"])
def test_the_agent_and_its_computer_know_nothing_of_turnstile(name: str) -> None:
    source = Path(vision.agent.__file__).with_name(name).read_text(encoding="utf-8")
    imported = {
        alias.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert not [each for each in imported if each.partition(".")[0] in {"turnstile", "loop", "torch", "trl"}]
