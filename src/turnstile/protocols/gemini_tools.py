"""Functions that a Gemini request offers, and how free the model is to call them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.conversation import NamedTool, ToolChoice, ToolMode, ToolSpec
from turnstile.errors import CallerError
from turnstile.protocols.declaration import NO_PARAMETERS, Function, declared
from turnstile.protocols.gemini_request import (
    WireFunctionCallingConfig,
    WireFunctionDeclaration,
    WireToolConfig,
    declarations_of,
)
from turnstile.protocols.gemini_schema import json_schema_of
from turnstile.protocols.json_body import Fields, json_text, snippet, wrong_value

_DECLARATIONS = "functionDeclarations"
_CONFIG = "toolConfig.functionCallingConfig"


def tools_of(tools: Sequence[Fields]) -> tuple[ToolSpec, ...]:
    """All functions that the model is offered, in OpenAI's chat form.

    Parameters in Google's own form become a JSON schema (`gemini_schema`); those of `parametersJsonSchema` stay as
    they were written. `response`, `responseJsonSchema` and `behavior` change nothing here.

    Raises: CallerError that names the tool and what to send instead: Google's own tools cannot be served.
    """
    specs: list[ToolSpec] = []
    for at, tool in enumerate(tools):
        path = f"tools[{at}]"
        for name, value in tool.items():
            if name != _DECLARATIONS and bytes(value) != b"null":
                raise CallerError(
                    f"`{path}`: the tool `{snippet(name)}` is run by Google's servers and cannot be served here",
                    "Leave it out, or offer a function of your own in `functionDeclarations`",
                    code="unsupported_parameter",
                    param=f"{path}.{snippet(name)}",
                )
        for which, function in enumerate(declarations_of(tool, path)):
            specs.append(_spec(function, f"{path}.{_DECLARATIONS}[{which}]"))
    return tuple(specs)


def choose(asked: WireToolConfig | None, tools: tuple[ToolSpec, ...]) -> tuple[ToolChoice, tuple[ToolSpec, ...]]:
    """How free the model is, and the tools that it is told of: those of `allowedFunctionNames` alone, if any are named.

    Raises: CallerError that names the field at fault.
    """
    config = asked.function_calling_config if asked is not None else None
    if config is None:
        return ToolMode.AUTO, tools
    allowed = _allowed(config, tools)
    match (config.mode or "AUTO").upper():
        case "AUTO" | "MODE_UNSPECIFIED" | "VALIDATED":
            return ToolMode.AUTO, allowed
        case "NONE":
            return ToolMode.NONE if tools else ToolMode.AUTO, tools
        case "ANY" if len(config.allowed_function_names or ()) == 1:
            return NamedTool(allowed[0].name), tools
        case "ANY" if allowed:
            return ToolMode.REQUIRED, allowed
        case "ANY":
            problem = f"`{_CONFIG}.mode` is `ANY`, but there are no functions"
            raise CallerError(problem, "Send `tools`, or leave it out", code="invalid_value", param=f"{_CONFIG}.mode")
        case mode:
            raise wrong_value(f"{_CONFIG}.mode", "AUTO, ANY, NONE or VALIDATED", f'"{mode}"')


def _allowed(config: WireFunctionCallingConfig, tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    names = config.allowed_function_names
    if not names:
        return tools
    offered = {tool.name for tool in tools}
    for at, name in enumerate(names):
        if name not in offered:
            param = f"{_CONFIG}.allowedFunctionNames[{at}]"
            problem = f"`{param}` names `{snippet(name)}`, which is not among the functions"
            raise CallerError(problem, "Name functions of the request", code="invalid_value", param=param)
    return tuple(tool for tool in tools if tool.name in names)


def _spec(function: WireFunctionDeclaration, path: str) -> ToolSpec:
    return declared(Function(function.name, function.description, _parameters(function, path)))


def _parameters(function: WireFunctionDeclaration, path: str) -> msgspec.Raw:
    written, stated = function.parameters, function.parameters_json_schema
    if bytes(stated) != b"null":
        if bytes(written) != b"null":
            problem = f"`{path}`: `parameters` stands beside `parametersJsonSchema`"
            raise CallerError(problem, "Send one of them", code="invalid_value", param=f"{path}.parameters")
        if bytes(stated)[:1] != b"{":
            raise wrong_value(f"{path}.parametersJsonSchema", "an object", json_text(stated))
        return stated
    if bytes(written) == b"null":
        return NO_PARAMETERS
    return msgspec.Raw(json_schema_of(written, f"{path}.parameters").encode())
