"""Tools of a Responses request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from turnstile.conversation import NamedTool, ToolMode, ToolSpec
from turnstile.errors import CallerError
from turnstile.protocols.responses_request import WireChosenTool, WireToolChoice
from turnstile.protocols.responses_tools import HandedOut, Tools, choose, tools_of

LS: dict[str, Any] = {"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}}
PATCH: dict[str, Any] = {
    "type": "custom", "name": "apply_patch", "description": "Edit files",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}  # fmt: skip
AGENTS: dict[str, Any] = {"type": "namespace", "name": "agents", "description": "d", "tools": [dict(LS, name="spawn")]}
CODEX = "codex_exec"


def read(*tools: dict[str, Any], originator: str = "") -> Tools:
    return tools_of([Raw(json.dumps(tool).encode()) for tool in tools], originator)


def test_a_function_is_declared_in_one_order_whatever_the_clients():
    sent = {"strict": True, "parameters": {"b": 1, "a": 2}, "description": "d", "type": "function", "name": "f"}
    declared = (
        '{"type":"function","function":{"name":"f","description":"d","parameters":{"b": 1, "a": 2},"strict":true}}'
    )
    assert read(sent) == Tools((ToolSpec("f", declared),), {"f": HandedOut("f")})


def test_what_says_nothing_is_not_declared():
    sent = {"type": "function", "name": "f", "description": None, "parameters": None, "strict": False}
    assert read(sent).specs == (ToolSpec("f", '{"type":"function","function":{"name":"f"}}'),)


def test_a_custom_tool_is_a_function_with_one_string_and_its_grammar_in_words():
    tools = read(PATCH)
    function = json.loads(tools.specs[0].declaration)["function"]
    assert function == {
        "name": "apply_patch",
        "description": "Edit files\n\n`input` must match this lark grammar:\nstart: /.+/",
        "parameters": {
            "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"],
            "additionalProperties": False,
        },
    }  # fmt: skip
    assert tools.handed_out == {"apply_patch": HandedOut("apply_patch", is_custom=True)}


def test_a_namespace_is_laid_flat_under_double_names():
    tools = read(AGENTS, LS)
    assert [spec.name for spec in tools.specs] == ["agents__spawn", "ls"]
    assert tools.handed_out["agents__spawn"] == HandedOut("spawn", "agents")


@pytest.mark.parametrize(
    "kind",
    ["web_search", "web_search_preview", "file_search", "code_interpreter", "computer_use_preview", "image_generation",
     "mcp", "local_shell", "shell", "apply_patch", "tool_search"],
)  # fmt: skip
def test_a_built_in_tool_is_refused_by_name(kind: str):
    with pytest.raises(CallerError) as caught:
        read(LS, {"type": kind})
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "tools[1].type")
    assert kind in caught.value.problem


def test_codex_may_offer_its_built_in_tools_and_the_model_is_not_told():
    tools = read(LS, {"type": "web_search"}, {"type": "tool_search"}, originator=CODEX)
    assert ([spec.name for spec in tools.specs], tools.left_out) == (
        ["ls"], ("tools[1]: web_search", "tools[2]: tool_search"),
    )  # fmt: skip
    with pytest.raises(CallerError):
        read({"type": "mcp"}, originator=CODEX)


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (None, ToolMode.AUTO), ("auto", ToolMode.AUTO), ("none", ToolMode.NONE), ("required", ToolMode.REQUIRED),
        (WireToolChoice("function", "ls"), NamedTool("ls")),
        (WireToolChoice("custom", "apply_patch"), NamedTool("apply_patch")),
        (WireToolChoice("function", "spawn", "agents"), NamedTool("agents__spawn")),
    ],
)  # fmt: skip
def test_a_choice_leaves_the_tools_as_they_are(asked: str | WireToolChoice | None, chosen: object):
    tools = read(LS, PATCH, AGENTS)
    assert choose(asked, tools) == (chosen, tools.specs)


@pytest.mark.parametrize(("mode", "chosen"), [("auto", ToolMode.AUTO), ("required", ToolMode.REQUIRED)])
def test_allowed_tools_are_the_only_ones_that_the_model_is_told_of(mode: str, chosen: ToolMode):
    tools = read(LS, PATCH)
    asked = WireToolChoice("allowed_tools", mode=mode, tools=[WireChosenTool("custom", "apply_patch")])
    assert choose(asked, tools) == (chosen, tools.specs[1:])


@pytest.mark.parametrize(
    ("asked", "code", "param"),
    [
        ("sometimes", "invalid_value", "tool_choice"),
        (WireToolChoice("function"), "missing_required_parameter", "tool_choice.name"),
        (WireToolChoice("function", "rm"), "invalid_value", "tool_choice.name"),
        (WireToolChoice("web_search"), "unsupported_parameter", "tool_choice"),
        (WireToolChoice("allowed_tools", mode="never", tools=[]), "invalid_value", "tool_choice.mode"),
        (WireToolChoice("allowed_tools", mode="auto", tools=[WireChosenTool("mcp")]), "invalid_value",
         "tool_choice.tools[0]"),
        (WireToolChoice("allowed_tools", mode="required", tools=[]), "invalid_value", "tool_choice"),
    ],
)  # fmt: skip
def test_a_choice_that_cannot_be_is_refused_by_name(asked: str | WireToolChoice, code: str, param: str):
    with pytest.raises(CallerError) as caught:
        choose(asked, read(LS))
    assert (caught.value.code, caught.value.param) == (code, param)


def test_required_without_tools_is_refused_and_none_without_tools_is_no_wish():
    with pytest.raises(CallerError):
        choose("required", Tools())
    assert choose("none", Tools()) == (ToolMode.AUTO, ())


@pytest.mark.parametrize("tool", [{"type": "function"}, {"type": "custom", "name": ""}, {"type": "namespace"}])
def test_a_tool_without_a_name_is_refused(tool: dict[str, Any]):
    with pytest.raises(CallerError) as caught:
        read(tool)
    assert caught.value.param == "tools[0].name"
