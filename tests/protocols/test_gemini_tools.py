from __future__ import annotations

import json

import msgspec
import pytest

from turnstile.conversation import NamedTool, ToolMode
from turnstile.errors import CallerError
from turnstile.protocols.gemini_request import WireFunctionCallingConfig, WireToolConfig
from turnstile.protocols.gemini_tools import choose, tools_of


def tools(*functions, **more):
    raws = {"functionDeclarations": functions, **more}
    return tools_of([msgspec.json.decode(json.dumps(raws).encode(), type=dict[str, msgspec.Raw])])


def chosen(mode=None, names=None, offered=None):
    config = WireToolConfig(WireFunctionCallingConfig(mode, names))
    return choose(config, tools({"name": "f"}, {"name": "g"}) if offered is None else offered)


def test_functions_are_declared_in_openais_chat_form():
    (f, g) = tools(
        {"name": "f", "description": "F.", "parameters": {"type": "OBJECT"}, "behavior": "BLOCKING"},
        {"name": "g", "parametersJsonSchema": {"type": "object", "properties": {"TYPE": {}}}},
    )
    assert json.loads(f.declaration) == {
        "type": "function", "function": {"name": "f", "description": "F.", "parameters": {"type": "object"}},
    }  # fmt: skip
    assert json.loads(g.declaration)["function"]["parameters"] == {"type": "object", "properties": {"TYPE": {}}}


@pytest.mark.parametrize("name", ["googleSearch", "codeExecution", "urlContext", "googleMaps", "computerUse"])
def test_googles_own_tools_are_refused_by_name(name):
    with pytest.raises(CallerError, match=name) as caught:
        tools({"name": "f"}, **{name: {}})
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", f"tools[0].{name}")


@pytest.mark.parametrize(
    ("function", "param"),
    [
        ({"name": ""}, "tools[0].functionDeclarations[0].name"),
        ({"name": "f", "parameters": 3}, "tools[0].functionDeclarations[0].parameters"),
        ({"name": "f", "parametersJsonSchema": []}, "tools[0].functionDeclarations[0].parametersJsonSchema"),
        (
            {"name": "f", "parameters": {}, "parametersJsonSchema": {}},
            "tools[0].functionDeclarations[0].parameters",
        ),
    ],
)
def test_a_function_that_is_none_is_refused_by_its_place(function, param):
    with pytest.raises(CallerError) as caught:
        tools(function)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("mode", "names", "choice", "told"),
    [
        (None, None, ToolMode.AUTO, "fg"),
        ("auto", None, ToolMode.AUTO, "fg"),
        ("VALIDATED", ["f"], ToolMode.AUTO, "f"),
        ("NONE", None, ToolMode.NONE, "fg"),
        ("ANY", None, ToolMode.REQUIRED, "fg"),
        ("ANY", ["f", "g"], ToolMode.REQUIRED, "fg"),
        ("ANY", ["g"], NamedTool("g"), "fg"),
    ],
)
def test_the_mode_says_how_free_the_model_is(mode, names, choice, told):
    found, offered = chosen(mode, names)
    assert (found, "".join(tool.name for tool in offered)) == (choice, told)


def test_without_functions_nothing_is_chosen():
    assert choose(None, ()) == (ToolMode.AUTO, ())
    assert chosen("NONE", offered=()) == (ToolMode.AUTO, ())


@pytest.mark.parametrize(
    ("mode", "names", "offered", "field"),
    [("SOME", None, None, "mode"), ("ANY", None, (), "mode"), ("ANY", ["f", "h"], None, "allowedFunctionNames[1]")],
)
def test_a_choice_that_cannot_be_is_refused(mode, names, offered, field):
    with pytest.raises(CallerError) as caught:
        chosen(mode, names, offered)
    assert caught.value.param == f"toolConfig.functionCallingConfig.{field}"
