"""Reading one call that is written as a JSON object."""

from __future__ import annotations

import msgspec

from turnstile.generation import Note
from turnstile.parsing.jsontext import Member, members
from turnstile.parsing.toolcalls.base import RawCall
from turnstile.reasons import NoteCode

_ARGUMENTS = ("arguments", "parameters")


class Broken(msgspec.Struct, frozen=True):
    """The text is no JSON object."""

    problem: str


class Nameless(msgspec.Struct, frozen=True):
    """The text is a JSON object that names no tool."""


def json_call(text: str) -> RawCall | Broken | Nameless:
    """The call that a JSON object stands for, its arguments spelled as they were written.

    `arguments` and `parameters` are one key, as engines have it; a call without either has none: `{}`.
    """
    try:
        found = members(text)
    except ValueError as error:
        return Broken(str(error))
    name = _name(found.get("name"))
    if not name:
        return Nameless()
    return RawCall(name, next((found[key].text for key in _ARGUMENTS if key in found), "{}"))


def has_arguments(text: str) -> bool:
    """Whether a valid JSON object has a member for arguments."""
    return not members(text).keys().isdisjoint(_ARGUMENTS)


def _name(member: Member | None) -> str:
    if member is None or not member.is_string or not isinstance(member.value, str):
        return ""
    # JSON can spell half a surrogate pair, which no text that leaves here could carry.
    return member.value if member.value.encode(errors="ignore").decode() == member.value else ""


def invalid(problem: str) -> Note:
    """A call was there and could not be read."""
    return Note(NoteCode.TOOL_JSON_INVALID, problem)


def without_call(marker: str) -> Note:
    """A marker was there and no call."""
    return Note(NoteCode.TOOL_SECTION_WITHOUT_CALL, marker)
