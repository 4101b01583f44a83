"""Who reads what the model writes: Turnstile's parser by the template's format, or the engine's own."""

from __future__ import annotations

from turnstile.engines.base import Capabilities
from turnstile.errors import CallerError
from turnstile.parsing.formats import ENGINES_OWN, NO_TOOL_CALLS, AnswerFormat, by_name, detect
from turnstile.templates.files import ModelFiles
from turnstile.templates.served import Served

_A_TOOL = ('{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}',)


def format_of(name: str, files: ModelFiles) -> AnswerFormat:
    """The format that a setting names; empty = the one that the template shows.

    Raises: CallerError for an unknown name.
    """
    found = detect(files.tool_use_template or files.chat_template)
    return by_name(name, found.reasoning) if name else found


def read_by(name: str, found: AnswerFormat, engine: Capabilities, served: Served) -> tuple[AnswerFormat, str]:
    """The format to read with, once it is known what the engine can, and what to tell of it.

    A format that Turnstile knows it reads itself: that streams alike on all engines, tells where the parts of a broken
    answer end, and needs no engine to be read again. One that it does not know is left to an engine that can.

    Args:
        name: the setting.
        found: what the setting or the template says.
        engine: whose parsers may be asked.
        served: the model.

    Raises: CallerError `format_not_readable` if the setting wants an engine's parser that cannot be asked.
    """
    if found.is_read_by_engine and not engine.reads_answers:
        remedies = [each.remedy for each in engine.missing if each.what == "its own parsers"]
        raise CallerError(
            f"The engine ({engine.engine} {engine.version}) cannot be asked to read answers",
            next(iter(remedies), "Leave --answer-format out"),
            code="format_not_readable",
        )
    is_unknown = not name and found.tool_calls == NO_TOOL_CALLS and not served.for_tools(_A_TOOL).facts.drops_tools
    if is_unknown and engine.reads_answers:
        return ENGINES_OWN, f"The template writes tool calls as Turnstile does not: {engine.engine}'s parser reads them"
    return found, ""


def kept_name(name: str, chosen: AnswerFormat) -> str:
    """What a store keeps of how answers were read; empty = as the template suggests."""
    return chosen.tool_calls if chosen.is_read_by_engine else name
