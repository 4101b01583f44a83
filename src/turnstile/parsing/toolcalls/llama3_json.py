"""Llama 3.1 and later: a bare JSON object with `name` and `parameters`, at times behind `<|python_tag|>`.

As in vLLM's `llama3_json`: the answer must begin with the object or the tag, and several objects are parted by
semicolons. An object that is no call is content; nothing but its first key is waited for to see that.
"""

from __future__ import annotations

import enum
import re
from typing import final

from turnstile.conversation import ToolSpec
from turnstile.generation import Note
from turnstile.parsing.gbnf import Rules, literal
from turnstile.parsing.jsongrammar import JsonGrammar
from turnstile.parsing.jsontext import object_end, write
from turnstile.parsing.schema import parameters
from turnstile.parsing.toolcalls.base import NotACall, Opener, Place, RawCall, Reading, Section, Syntax, Unfinished
from turnstile.parsing.toolcalls.jsoncall import Broken, Nameless, has_arguments, invalid, json_call, without_call

_TAG = "<|python_tag|>"
_SEPARATOR = ";"
_SPACE = re.compile(r"\s*")
_FIRST_KEYS = ("name", "type", "parameters", "arguments", "id")
_LONGEST_KEY = 16


class FirstKey(enum.StrEnum):
    """What the first key of an object says about it."""

    OPEN = "open"
    KNOWN = "known"
    FOREIGN = "foreign"


@final
class Llama3Json:
    """`{"name": ..., "parameters": {...}}`."""

    name = "llama3_json"
    syntax = Syntax(
        (Opener(_TAG), Opener("{", Place.FIRST), Opener(_SEPARATOR, Place.AFTER_CALL)),
        (_TAG,),
        "",  # the templates raise on a history with two calls in one message
    )

    def read(self, text: str, tools: tuple[ToolSpec, ...]) -> Reading:
        """The call ends where its braces do."""
        del tools
        opener = _opener(text)
        brace = _past_space(text, len(opener))
        if brace == len(text):
            return Unfinished()
        if text[brace] != "{":
            return NotACall(len(opener), _note(opener))
        match _first_key(text, brace):
            case FirstKey.OPEN:
                return Unfinished()
            case FirstKey.FOREIGN:
                return NotACall(brace + 1, _note(opener))
            case FirstKey.KNOWN:
                end = object_end(text, brace)
                return Unfinished(("}",)) if end is None else _whole(text[brace:end], end, opener)

    def read_last(self, text: str, tools: tuple[ToolSpec, ...]) -> Section | NotACall:
        """Braces that never close are text."""
        reading = self.read(text, tools)
        if not isinstance(reading, Unfinished):
            return reading
        return NotACall(len(text), invalid("it never ends") if reading.until else _note(_opener(text)))

    def call_rule(self, rules: Rules, tool: ToolSpec) -> str:
        """Spaced as the templates print it."""
        arguments = JsonGrammar(rules, parameters(tool)).root(tool.name)
        head = literal(f'{{"name": {write(tool.name)}, "parameters": ')
        return f"{head} {arguments} {literal('}')}"


def _opener(text: str) -> str:
    return next((marker for marker in (_TAG, _SEPARATOR) if text.startswith(marker)), "")


def _past_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _first_key(text: str, brace: int) -> FirstKey:
    at = _past_space(text, brace + 1)
    if at == len(text):
        return FirstKey.OPEN
    if text[at] != '"':
        return FirstKey.FOREIGN
    key, closed, _ = text[at + 1 : at + 1 + _LONGEST_KEY].partition('"')
    if closed:
        return FirstKey.KNOWN if key in _FIRST_KEYS else FirstKey.FOREIGN
    return FirstKey.OPEN if any(known.startswith(key) for known in _FIRST_KEYS) else FirstKey.FOREIGN


def _note(opener: str) -> Note | None:
    # Only the tag says that a call was meant: a plain object or a semicolon may be anything.
    return without_call(_TAG) if opener == _TAG else None


def _whole(body: str, end: int, opener: str) -> Section | NotACall:
    match json_call(body):
        case Broken(problem=problem):
            return NotACall(end, invalid(problem))
        case Nameless():
            return NotACall(end, _note(opener))
        case RawCall() as call:
            # Without a tag, an object with a name and no arguments is somebody's data.
            return Section(end, (call,)) if opener or has_arguments(body) else NotACall(end)
