"""Tools of a Responses request: what the model is told of them, and how its calls are handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from turnstile.conversation import NamedTool, ToolChoice, ToolMode, ToolSpec
from turnstile.errors import CallerError
from turnstile.protocols.declaration import NO_PARAMETERS, Function, declared, offered_name
from turnstile.protocols.json_body import fields_of, json_text, read_json, snippet, wrong_value
from turnstile.protocols.responses_request import WireChosenTool, WireTool, WireToolChoice, WireToolFormat

CUSTOM_INPUT = "input"
"""The one argument of the function that stands for a custom tool."""
_CUSTOM_PARAMETERS = msgspec.Raw(
    f'{{"type":"object","properties":{{"{CUSTOM_INPUT}":{{"type":"string"}}}},'
    f'"required":["{CUSTOM_INPUT}"],"additionalProperties":false}}'.encode()
)
_NAMESPACE_JOINT = "__"

_OPTIONAL_FOR = {"codex": frozenset({"web_search", "tool_search", "image_generation"})}
"""Built-in tools that a harness offers unasked, by the beginning of its `originator` header. The model is not told of
them, so it cannot call one. Source: Codex 0.171 sends `web_search` always, `tool_search` for models that it knows."""

_tool_decoder = msgspec.json.Decoder(WireTool)


class HandedOut(msgspec.Struct, frozen=True):
    """How calls of a tool look to the client."""

    name: str
    namespace: str = ""
    is_custom: bool = False
    """Its calls carry a free text, not JSON arguments."""


class Tools(msgspec.Struct, frozen=True):
    """The tools of a request."""

    specs: tuple[ToolSpec, ...] = ()
    handed_out: Mapping[str, HandedOut] = {}
    """By the name that the model knows a tool by."""
    left_out: tuple[str, ...] = ()
    """Places and types of tools that the model is not told of."""


def rendered_name(name: str, namespace: str | None) -> str:
    """What the model knows a tool by: a tool of a namespace is `NAMESPACE__NAME`."""
    return f"{namespace}{_NAMESPACE_JOINT}{name}" if namespace else name


def tools_of(raws: Sequence[msgspec.Raw], originator: str) -> Tools:
    """All tools, flat and in order.

    A function is declared with its name, description, parameters and, if true, `strict`, in this order whatever the
    client's, so that it costs the same ids as in other dialects. A custom tool is a function with one string
    argument, `input`; the grammar of its input stands in its description. The functions of a namespace follow one
    another.

    Args:
        raws: the tools as written.
        originator: the harness that says it sends this; empty if it does not say.

    Raises: CallerError that names a tool which cannot be served or read.
    """
    specs: list[ToolSpec] = []
    handed_out: dict[str, HandedOut] = {}
    left_out: list[str] = []
    for at, raw in enumerate(raws):
        path = f"tools[{at}]"
        tool = read_json(_tool_decoder, raw, path)
        if tool.type == "namespace":
            found = _namespace(tool, path)
        elif _is_optional(tool.type, originator):
            left_out.append(f"{path}: {tool.type}")
            found = []
        else:
            found = [_tool(tool, raw, path, "")]
        specs += (spec for spec, _ in found)
        handed_out |= {spec.name: how for spec, how in found}
    return Tools(tuple(specs), handed_out, tuple(left_out))


def _is_optional(kind: str, originator: str) -> bool:
    return any(originator.lower().startswith(who) and kind in kinds for who, kinds in _OPTIONAL_FOR.items())


def _namespace(tool: WireTool, path: str) -> list[tuple[ToolSpec, HandedOut]]:
    namespace = _name(tool, path)
    found: list[tuple[ToolSpec, HandedOut]] = []
    for at, raw in enumerate(tool.tools or ()):
        inner_path = f"{path}.tools[{at}]"
        found.append(_tool(read_json(_tool_decoder, raw, inner_path), raw, inner_path, namespace))
    return found


def _tool(tool: WireTool, raw: msgspec.Raw, path: str, namespace: str) -> tuple[ToolSpec, HandedOut]:
    match tool.type:
        case "function":
            name = _name(tool, path)
            parameters = fields_of(raw).get("parameters", NO_PARAMETERS)
            function = Function(
                rendered_name(name, namespace),
                tool.description or None,
                NO_PARAMETERS if json_text(parameters) == "null" else parameters,
                tool.strict or None,
            )
            return declared(function), HandedOut(name, namespace)
        case "custom":
            name = _name(tool, path)
            function = Function(rendered_name(name, namespace), _custom_description(tool) or None, _CUSTOM_PARAMETERS)
            return declared(function), HandedOut(name, namespace, is_custom=True)
        case kind:
            raise CallerError(
                f"`{path}`: the tool `{snippet(kind)}` is OpenAI's own and cannot be served here",
                "Leave it out; send tools of type `function` or `custom`, which the client runs itself",
                code="unsupported_parameter",
                param=f"{path}.type",
            )


def _name(tool: WireTool, path: str) -> str:
    if not tool.name:
        raise wrong_value(f"{path}.name", "a string of length at least 1", "" if tool.name is None else '""')
    return tool.name


def _custom_description(tool: WireTool) -> str:
    match tool.format:
        case WireToolFormat(type="grammar", syntax=syntax, definition=str(definition)):
            form = f"`{CUSTOM_INPUT}` must match this {syntax or 'lark'} grammar:\n{definition}"
            return f"{tool.description}\n\n{form}" if tool.description else form
        case _:
            return tool.description or ""


def choose(asked: str | WireToolChoice | None, tools: Tools) -> tuple[ToolChoice, tuple[ToolSpec, ...]]:
    """How free the model is, and the tools that it is told of: those of `allowed_tools` alone, if that is asked.

    Raises: CallerError that names the choice at fault.
    """
    match asked:
        case None | "auto":
            return ToolMode.AUTO, tools.specs
        case "none":
            return ToolMode.NONE if tools.specs else ToolMode.AUTO, tools.specs
        case "required":
            return _required(tools.specs), tools.specs
        case WireToolChoice(type="function" | "custom", name=str(name), namespace=namespace):
            chosen = offered_name(rendered_name(name, namespace), tools.handed_out, "tool_choice.name")
            return NamedTool(chosen), tools.specs
        case WireToolChoice(type="function" | "custom"):
            raise wrong_value("tool_choice.name", "a tool's name")
        case WireToolChoice(type="allowed_tools", mode=mode, tools=allowed):
            return _allowed(mode, allowed or (), tools)
        case WireToolChoice(type=kind):
            problem = f"`tool_choice` of type `{snippet(kind)}` cannot be served here"
            remedy = "Send auto, none, required, allowed_tools, or one function's or custom tool's name"
            raise CallerError(problem, remedy, code="unsupported_parameter", param="tool_choice")
        case str(word):
            raise wrong_value("tool_choice", "auto, none, required or a tool's name", f'"{word}"')


def _required(specs: tuple[ToolSpec, ...]) -> ToolMode:
    if not specs:
        problem = "`tool_choice` is `required`, but there are no tools"
        raise CallerError(problem, "Send `tools`, or leave it out", code="invalid_value", param="tool_choice")
    return ToolMode.REQUIRED


def _allowed(
    mode: str | None, allowed: Sequence[WireChosenTool], tools: Tools
) -> tuple[ToolChoice, tuple[ToolSpec, ...]]:
    names: set[str] = set()
    for at, chosen in enumerate(allowed):
        path = f"tool_choice.tools[{at}]"
        if chosen.type not in {"function", "custom"} or not chosen.name:
            raise wrong_value(path, "a function or custom tool with its name", f'"{chosen.type}"')
        names.add(offered_name(rendered_name(chosen.name, chosen.namespace), tools.handed_out, path))
    specs = tuple(spec for spec in tools.specs if spec.name in names)
    match mode:
        case None | "auto":
            return ToolMode.AUTO, specs
        case "required":
            return _required(specs), specs
        case word:
            raise wrong_value("tool_choice.mode", "auto or required", f'"{word}"')
