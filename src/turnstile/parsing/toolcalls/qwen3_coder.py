"""Qwen3-Coder and Qwen 3.5: functions and parameters in tags, values as plain text.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

As in vLLM's `qwen3_coder`: values are typed by the tool's schema, one newline at each end of a value belongs to the
tags, a call may stand without its `<tool_call>`, and closing tags that the model left out are forgiven.
"""

from __future__ import annotations

import re
from typing import final

from turnstile.conversation import ToolSpec
from turnstile.parsing.gbnf import Rules, literal
from turnstile.parsing.jsongrammar import JsonGrammar
from turnstile.parsing.jsontext import write
from turnstile.parsing.schema import JsonKind, Schema, parameters
from turnstile.parsing.toolcalls.base import NotACall, Opener, RawCall, Reading, Section, Syntax, Unfinished
from turnstile.parsing.toolcalls.jsoncall import without_call
from turnstile.parsing.typedvalue import json_text
from turnstile.parsing.unenforced import left_out, left_out_of_text

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _END_FUNCTION = "<function=", "</function>"
_PARAMETER, _END_PARAMETER = "<parameter=", "</parameter>"

_SECTION_END = re.compile(r"</function>\s*</tool_call>")
_TAG = re.compile(r"<function=([^<>\n]+)>|<parameter=([^<>\n]+)>")


@final
class Qwen3Coder:
    """`<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`."""

    name = "qwen3_coder"
    syntax = Syntax(
        (Opener(_OPEN), Opener(_FUNCTION)),
        (_OPEN, _CLOSE, _FUNCTION, _END_FUNCTION, _PARAMETER, _END_PARAMETER),
        "\n",
    )

    def read(self, text: str, tools: tuple[ToolSpec, ...]) -> Reading:
        """The call ends with its own closing tag; a `</tool_call>` inside a value does not end it."""
        if text.startswith(_FUNCTION):
            return _read_bare(text, tools)
        body = text[len(_OPEN) :].lstrip()
        if not body.startswith(_FUNCTION):
            may_come = _FUNCTION.startswith(body)
            return Unfinished() if may_come else NotACall(len(_OPEN), without_call(_OPEN))
        ends = (found.end() for found in _SECTION_END.finditer(text) if not _inside_value(text, found.start()))
        end = next(ends, None)
        return Unfinished((_CLOSE,)) if end is None else _section(text, end, tools)

    def read_last(self, text: str, tools: tuple[ToolSpec, ...]) -> Section | NotACall:
        """Without its own closing tag a call ends at the first `</tool_call>`, or with the answer."""
        close = text.find(_CLOSE)
        return _section(text, len(text) if close < 0 else close + len(_CLOSE), tools)

    def call_rule(self, rules: Rules, tool: ToolSpec) -> str:
        """Parameters in the schema's order, the required ones always."""
        schema = parameters(tool)
        json = JsonGrammar(rules, schema)
        rules.leave_out(left_out(schema.merged().node))
        pieces = [literal(f"{_OPEN}\n{_FUNCTION}{tool.name}>\n")]
        required = schema.required()
        for key, value in schema.properties().items():
            head = literal(f"{_PARAMETER}{key}>\n")
            piece = f"{head} {_value_rule(rules, json, value)}"
            pieces.append(piece if key in required else f"({piece})?")
        return " ".join([*pieces, literal(f"{_END_FUNCTION}\n{_CLOSE}")])


def _value_rule(rules: Rules, json: JsonGrammar, schema: Schema) -> str:
    end = f"\n{_END_PARAMETER}\n"
    kinds = schema.kinds(spend=rules.spend)
    choices = schema.string_choices()
    if choices:
        return f"({' | '.join(literal(choice) for choice in choices)}) {literal(end)}"
    if JsonKind.STRING in kinds or not kinds:
        rules.leave_out(left_out_of_text(schema.merged().node))
        return rules.through(end, "parameter-text")
    return f"{json.value(schema)} {literal(end)}"


def _inside_value(text: str, at: int) -> bool:
    return text.rfind(_PARAMETER, 0, at) > text.rfind(_END_PARAMETER, 0, at)


def _read_bare(text: str, tools: tuple[ToolSpec, ...]) -> Reading:
    close = text.find(_END_FUNCTION)
    while close >= 0 and _inside_value(text, close):
        close = text.find(_END_FUNCTION, close + 1)
    if close < 0:
        return Unfinished((_END_FUNCTION,))
    end = close + len(_END_FUNCTION)
    rest = text[end:].lstrip()
    if rest.startswith(_CLOSE):
        return _section(text, text.index(_CLOSE, end) + len(_CLOSE), tools)
    return Unfinished() if _CLOSE.startswith(rest) else _section(text, end, tools)


def _section(text: str, end: int, tools: tuple[ToolSpec, ...]) -> Section | NotACall:
    calls = _calls(text[:end], tools)
    if calls:
        return Section(end, calls)
    return NotACall(end, without_call(_OPEN if text.startswith(_OPEN) else _FUNCTION))


def _calls(body: str, tools: tuple[ToolSpec, ...]) -> tuple[RawCall, ...]:
    out: list[tuple[str, dict[str, str]]] = []
    at = 0
    while tag := _TAG.search(body, at):
        at = tag.end()
        function, parameter = tag.groups()
        if function is not None:
            out.append((function.strip(), {}))
        elif out:
            value, at = _value(body, at)
            out[-1][1][parameter.strip()] = value
    return tuple(_call(name, values, tools) for name, values in out)


def _call(name: str, values: dict[str, str], tools: tuple[ToolSpec, ...]) -> RawCall:
    declared = [parameters(tool).properties() for tool in tools if tool.name == name]
    known = declared[0] if declared else dict[str, Schema]()
    pairs = (
        f"{write(key)}: {json_text(value, known[key].kinds() if key in known else frozenset())}"
        for key, value in values.items()
    )
    return RawCall(name, "{" + ", ".join(pairs) + "}")


def _value(body: str, start: int) -> tuple[str, int]:
    """The value that begins at `start`, and where reading goes on."""
    end = body.find(_END_PARAMETER, start)
    if end < 0:
        marks = (body.find(mark, start) for mark in (_PARAMETER, _END_FUNCTION, _CLOSE))
        end = min((mark for mark in marks if mark >= 0), default=len(body))
    return body[start:end].removeprefix("\n").removesuffix("\n"), end
