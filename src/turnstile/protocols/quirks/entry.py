"""What an entry of the table of quirks says: whose habit it is, how a request shows it, what is done about it."""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

TABLE_VERSION = 1
"""Of the form of an entry; a file of own entries names it."""


class ToolsShown(enum.StrEnum):
    """Whether a request offers tools; an empty list is none."""

    EITHER = "either"
    NONE = "none"
    SOME = "some"


class Answers(enum.StrEnum):
    """Whether a request holds answers of the model."""

    EITHER = "either"
    NONE = "none"


class HeaderTest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A header that a request must have."""

    name: str
    """In lower case."""
    value: str = ""
    """The whole value; empty: any value but the empty one."""


class When(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How a request shows a habit: every test that is given must hold.

    Texts are compared without regard to case, and stand here case-folded.
    """

    dialects: tuple[str, ...] = ()
    """Any of these."""
    headers: tuple[HeaderTest, ...] = ()
    """All of these."""
    tools: ToolsShown = ToolsShown.EITHER
    answers: Answers = Answers.EITHER
    output_fields: tuple[str, ...] = ()
    """The names of the members of the JSON schema that the answer must have: these and no others."""
    max_tokens: int | None = None
    """Exactly this limit."""
    user_is: str = ""
    """The whole text of the only user message."""
    last_user_has: tuple[str, ...] = ()
    """Any of these stands near the beginning of the last message, which is a user's."""
    system_has: tuple[str, ...] = ()
    """Any of these stands near the beginning of the leading system text."""


class Place(enum.StrEnum):
    """Where a line may stand in the first system message."""

    FIRST_LINE = "first_line"
    """At its very beginning."""
    ANY_LINE = "any_line"


class RemoveSystemLine(
    msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="remove_system_line"
):
    """Take lines that change by themselves out of the first system message, so out of prompt and head."""

    starts_with: str
    place: Place = Place.FIRST_LINE


class MarkAuxiliary(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="mark_auxiliary"):
    """The call is the harness's own and is never trained on."""

    purpose: str
    """What the harness wants it for, one word, such as `title`."""


class NameAgent(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, tag="name_agent"):
    """The call is a sub-agent's: give it a name."""

    from_headers: tuple[str, ...]
    """Headers whose values make up the name, in order; those that are not sent are left out."""
    parent_header: str = ""
    """Where the request says who called the sub-agent."""


class ToldOnly(msgspec.Struct, frozen=True, tag="told_only"):
    """Nothing is switched here: what is done about it holds for every client, or it is an edit like any other."""


Action: TypeAlias = RemoveSystemLine | MarkAuxiliary | NameAgent | ToldOnly


class Quirk(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One habit of one harness."""

    name: str
    action: Action
    when: When = When()
    who: str = ""
    """Whose habit it is."""
    since: str = ""
    """The versions that it was seen in."""
    sends: str = ""
    """What a request looks like."""
    effect: str = ""
    """What is done about it."""
    reference: str = ""
    """Where that can be looked up."""
