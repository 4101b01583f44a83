"""How a family of models writes its answers, chosen by its chat template."""

from __future__ import annotations

import re

import msgspec

from turnstile.errors import CallerError
from turnstile.parsing.toolcalls import FORMATS
from turnstile.parsing.toolcalls.base import ToolCallFormat

NO_TOOL_CALLS = "none"
ENGINE = "engine"
"""The engine's own parser reads answers, tool calls and reasoning alike."""


class ReasoningMarkers(msgspec.Struct, frozen=True):
    """The texts between which a model thinks."""

    opening: str
    closing: str


THINK = ReasoningMarkers("<think>", "</think>")


class AnswerFormat(msgspec.Struct, frozen=True):
    """How answers are to be read."""

    reasoning: ReasoningMarkers | None
    """None: no reasoning is told apart."""
    tool_calls: str
    """A format's name, or `none`: calls, if any, stay text; or `engine`."""

    @property
    def is_read_by_engine(self) -> bool:
        """Whether the engine's own parser reads answers."""
        return self.tool_calls == ENGINE

    @property
    def has_syntax(self) -> bool:
        """Whether Turnstile knows how calls are written."""
        return self.tool_calls not in (NO_TOOL_CALLS, ENGINE)


ENGINES_OWN = AnswerFormat(None, ENGINE)


def by_name(name: str, reasoning: ReasoningMarkers | None = THINK) -> AnswerFormat:
    """The format that a setting names, with the given reasoning markers.

    Reasoning is told apart only where an answer begins with it, so the markers do no harm to a model that has none.

    Raises: CallerError for an unknown name, with the known ones.
    """
    if name == ENGINE:
        return ENGINES_OWN
    if name != NO_TOOL_CALLS:
        tool_call_format(name)
    return AnswerFormat(reasoning, name)


def detect(template_source: str) -> AnswerFormat:
    """The format that a chat template's text asks its model for.

    A template shows its format to the model and prints earlier calls in it, so its own literals tell. Formats that
    share a marker with a known one and differ otherwise (GLM's `<arg_key>`) are `none`: their calls stay text.
    """
    thinks = THINK.closing in template_source
    return AnswerFormat(THINK if thinks else None, _tool_calls(template_source))


_HERMES_CALL = re.compile(r"""<tool_call>.{0,40}?["']name\\?["']""", re.DOTALL)
_LLAMA_CALL = re.compile(r'\{"name": function name, "parameters":')


def _tool_calls(source: str) -> str:
    if "<tool_call>" in source and "<function=" in source and "<parameter=" in source:
        return "qwen3_coder"
    if _HERMES_CALL.search(source):
        return "hermes"
    if _LLAMA_CALL.search(source):
        return "llama3_json"
    return NO_TOOL_CALLS


def tool_call_format(name: str) -> ToolCallFormat:
    """The tool-call format of a name. Raises: CallerError for an unknown name, with the known ones."""
    for known in FORMATS:
        if known.name == name:
            return known
    names = ", ".join(f"`{known.name}`" for known in FORMATS)
    raise CallerError(
        f"There is no tool-call format `{name}`",
        f"Use one of {names}, `{ENGINE}`, or `{NO_TOOL_CALLS}`",
        code="unknown_format",
    )
