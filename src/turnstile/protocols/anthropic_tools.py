"""Tools of an Anthropic request: the client's own, and those of Anthropic's that the client itself runs.

A hosted model knows Anthropic's client tools by training, so a request names them without a schema. The model served
here does not, so each is declared to it in full. Tools that Anthropic's servers run cannot be served.

Source: the tool documentation and `types/*_param.py` of the `anthropic` package 2.15.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.conversation import JsonText, ToolSpec
from turnstile.errors import CallerError
from turnstile.protocols.anthropic_messages import tools_referred_to
from turnstile.protocols.anthropic_request import WireMessage, WireTool
from turnstile.protocols.declaration import Function, declared
from turnstile.protocols.json_body import json_text, read_json, snippet, wrong_value

_tool_decoder = msgspec.json.Decoder(WireTool)


def tools_of(raws: Sequence[msgspec.Raw], messages: Sequence[WireMessage]) -> tuple[ToolSpec, ...]:
    """All tools that the model is offered.

    A tool with `defer_loading` is offered once a result has referred to it. `strict` is handed on; `input_examples`,
    `allowed_callers` and `eager_input_streaming` change nothing here.

    Args:
        raws: the entries of `tools`.
        messages: the request's, whose results may refer to tools.

    Raises: CallerError that names the tool and what to send instead.
    """
    tools = [read_json(_tool_decoder, raw, f"tools[{at}]") for at, raw in enumerate(raws)]
    specs = [_spec(tool, f"tools[{at}]") for at, tool in enumerate(tools)]
    loaded = tools_referred_to(messages) if any(tool.defer_loading for tool in tools) else frozenset[str]()
    return tuple(spec for tool, spec in zip(tools, specs, strict=True) if not tool.defer_loading or spec.name in loaded)


def _spec(tool: WireTool, path: str) -> ToolSpec:
    if tool.type in (None, "custom"):
        return _own(tool, path)
    for family, (description, schema) in _CLIENT_TOOLS.items():
        if tool.type.startswith(family):
            name = tool.name or family.removesuffix("_20")
            return declared(Function(name, description(tool), msgspec.Raw(schema.encode())))
    raise CallerError(
        f"`{path}`: the tool `{snippet(tool.type)}` is run by Anthropic's servers and cannot be served here",
        "Leave it out, or offer a tool of your own with an `input_schema`",
        code="unsupported_parameter",
        param=path,
    )


def _own(tool: WireTool, path: str) -> ToolSpec:
    if tool.name is None:
        raise wrong_value(f"{path}.name", "a tool's name")
    schema = json_text(tool.input_schema)
    if not schema.startswith("{"):
        raise wrong_value(f"{path}.input_schema", "an object", "" if schema == "null" else schema)
    return declared(Function(tool.name, tool.description, tool.input_schema, tool.strict or None))


def _computer(tool: WireTool) -> str:
    size = ""
    if tool.display_width_px and tool.display_height_px:
        size = f" The screen is {tool.display_width_px} pixels wide and {tool.display_height_px} high."
    return f"Use a mouse and a keyboard to work with a computer, and take screenshots of it.{size}"


def _bash(_: WireTool) -> str:
    return "Run commands in a bash shell that stays open between calls."


def _text_editor(_: WireTool) -> str:
    return "View, create and edit text files."


def _memory(_: WireTool) -> str:
    return "Keep notes in files under /memories that outlast this conversation."


_BASH: JsonText = (
    '{"type":"object","properties":{"command":{"type":"string","description":"The command to run."},'
    '"restart":{"type":"boolean","description":"Set to true to start the shell anew."}}}'
)
_EDITOR: JsonText = (
    '{"type":"object","properties":{"command":{"type":"string",'
    '"enum":["view","create","str_replace","insert","undo_edit"]},"path":{"type":"string"},'
    '"file_text":{"type":"string","description":"With create: the whole file."},'
    '"old_str":{"type":"string","description":"With str_replace: what stands there."},'
    '"new_str":{"type":"string","description":"With str_replace: what is to stand there."},'
    '"insert_line":{"type":"integer","description":"With insert: the line to insert behind."},'
    '"insert_text":{"type":"string","description":"With insert: the text."},'
    '"view_range":{"type":"array","items":{"type":"integer"},"description":"With view: first and last line."}},'
    '"required":["command","path"]}'
)
_COMPUTER: JsonText = (
    '{"type":"object","properties":{"action":{"type":"string","enum":["key","type","mouse_move","left_click",'
    '"left_click_drag","right_click","middle_click","double_click","triple_click","left_mouse_down","left_mouse_up",'
    '"scroll","hold_key","wait","screenshot","cursor_position","zoom"]},'
    '"coordinate":{"type":"array","items":{"type":"integer"},"description":"x and y in pixels."},'
    '"start_coordinate":{"type":"array","items":{"type":"integer"}},"text":{"type":"string"},'
    '"duration":{"type":"number","description":"Seconds."},'
    '"scroll_direction":{"type":"string","enum":["up","down","left","right"]},"scroll_amount":{"type":"integer"},'
    '"region":{"type":"array","items":{"type":"integer"}}},"required":["action"]}'
)
_MEMORY: JsonText = (
    '{"type":"object","properties":{"command":{"type":"string",'
    '"enum":["view","create","str_replace","insert","delete","rename"]},"path":{"type":"string"},'
    '"view_range":{"type":"array","items":{"type":"integer"}},"file_text":{"type":"string"},'
    '"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},'
    '"insert_text":{"type":"string"},"old_path":{"type":"string"},"new_path":{"type":"string"}},'
    '"required":["command"]}'
)
_CLIENT_TOOLS = {
    "bash_20": (_bash, _BASH),
    "text_editor_20": (_text_editor, _EDITOR),
    "computer_20": (_computer, _COMPUTER),
    "memory_20": (_memory, _MEMORY),
}
"""By the beginning of their type, which ends in a date: how it is described, and the schema of its input."""
