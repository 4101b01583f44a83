"""The seam between the answer reader and one way of writing tool calls."""

from __future__ import annotations

import enum
from typing import Protocol, TypeAlias

import msgspec

from turnstile.conversation import JsonText, ToolSpec
from turnstile.generation import Note
from turnstile.parsing.gbnf import Rules


class Place(enum.StrEnum):
    """Where in an answer a marker opens a call."""

    ANYWHERE = "anywhere"
    FIRST = "first"
    """Before any content: nothing but whitespace, reasoning and calls stands before it."""
    AFTER_CALL = "after_call"
    """Right behind another call."""


class Opener(msgspec.Struct, frozen=True):
    """A text with which a call begins."""

    marker: str
    place: Place = Place.ANYWHERE


class Syntax(msgspec.Struct, frozen=True):
    """What the answer reader and the grammar have to know of a format."""

    openers: tuple[Opener, ...]
    control_markers: tuple[str, ...]
    """Markers that tokenizers may have as control tokens, which are text all the same."""
    between_calls: str
    """What a grammar puts between two calls; empty: the format's templates allow one call an answer."""


class RawCall(msgspec.Struct, frozen=True):
    """One call as it was read."""

    name: str
    arguments: JsonText
    """Valid JSON, always."""


class Unfinished(msgspec.Struct, frozen=True):
    """Nothing can be said until one of these texts has come; if none is given, until anything has."""

    until: tuple[str, ...] = ()


class Section(msgspec.Struct, frozen=True):
    """text[:end] is one or more whole calls."""

    end: int
    calls: tuple[RawCall, ...]


class NotACall(msgspec.Struct, frozen=True):
    """text[:end], end > 0, is shown as it stands, and reading goes on behind it."""

    end: int
    note: Note | None = None
    """None: it did not even look like a call."""


Reading: TypeAlias = Unfinished | Section | NotACall


class ToolCallFormat(Protocol):
    """One way in which models write tool calls. Stateless; sections are given whole, from their opener on."""

    @property
    def name(self) -> str:
        """What settings call it."""
        ...

    @property
    def syntax(self) -> Syntax:
        """How calls are found and how they are put side by side."""
        ...

    def read(self, text: str, tools: tuple[ToolSpec, ...]) -> Reading:
        """What a section is, if that can be said before the answer ends.

        Longer text never changes what has been said of shorter text: streams rely on it.
        """
        ...

    def read_last(self, text: str, tools: tuple[ToolSpec, ...]) -> Section | NotACall:
        """What a section is that was unfinished when the model ended its answer."""
        ...

    def call_rule(self, rules: Rules, tool: ToolSpec) -> str:
        """A GBNF expression for one call of a tool with arguments that its schema accepts."""
        ...
