"""Hermes and Qwen 2.5 / 3: a JSON object between `<tool_call>` and `</tool_call>`.

What vLLM's `hermes` parser and SGLang's `qwen25` take is taken here. Beyond them: a closing marker inside a JSON
string does not close the call, and a broken call does not turn its intact neighbours into text.
"""

from __future__ import annotations

from typing import final

from turnstile.conversation import ToolSpec
from turnstile.parsing.gbnf import Rules, literal
from turnstile.parsing.jsongrammar import JsonGrammar
from turnstile.parsing.jsontext import ends_in_string, write
from turnstile.parsing.schema import parameters
from turnstile.parsing.toolcalls.base import NotACall, Opener, RawCall, Reading, Section, Syntax, Unfinished
from turnstile.parsing.toolcalls.jsoncall import Broken, Nameless, invalid, json_call, without_call

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"


@final
class Hermes:
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`."""

    name = "hermes"
    syntax = Syntax((Opener(_OPEN),), (_OPEN, _CLOSE), "\n")

    def read(self, text: str, tools: tuple[ToolSpec, ...]) -> Reading:
        """The call ends at the first closing marker that is not inside a string."""
        del tools
        close = text.find(_CLOSE)
        while close >= 0 and ends_in_string(text[len(_OPEN) : close]):
            close = text.find(_CLOSE, close + len(_CLOSE))
        return Unfinished((_CLOSE,)) if close < 0 else _closed(text, close)

    def read_last(self, text: str, tools: tuple[ToolSpec, ...]) -> Section | NotACall:
        """A call whose closing marker the model left out counts if its JSON is whole."""
        del tools
        close = text.find(_CLOSE)
        if close >= 0:
            return _closed(text, close)
        return _body(text[len(_OPEN) :], len(text))

    def call_rule(self, rules: Rules, tool: ToolSpec) -> str:
        """Spaced and broken into lines as the templates print it."""
        arguments = JsonGrammar(rules, parameters(tool)).root(tool.name)
        head = literal(f'{_OPEN}\n{{"name": {write(tool.name)}, "arguments": ')
        tail = literal("}\n" + _CLOSE)
        return f"{head} {arguments} {tail}"


def _closed(text: str, close: int) -> Section | NotACall:
    return _body(text[len(_OPEN) : close], close + len(_CLOSE))


def _body(body: str, end: int) -> Section | NotACall:
    match json_call(body):
        case RawCall() as call:
            return Section(end, (call,))
        case Nameless():
            return NotACall(end, invalid("it has no name"))
        case Broken(problem=problem):
            looks_like_json = body.lstrip().startswith("{")
            return NotACall(end, invalid(problem) if looks_like_json else without_call(_OPEN))
