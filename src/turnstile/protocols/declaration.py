"""How a tool is declared to the model: in OpenAI's chat form in every dialect, so that equal tools give equal ids."""

from __future__ import annotations

import msgspec

from turnstile.conversation import ToolSpec

NO_PARAMETERS = msgspec.Raw(b"null")
"""A function that states no schema."""


class Function(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function, its members in the order in which OpenAI's clients write them."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = NO_PARAMETERS
    """JSON schema of its arguments, as written."""
    strict: bool | None = None


class _Declaration(msgspec.Struct, frozen=True):
    type: str
    function: Function


def declared(function: Function) -> ToolSpec:
    """The tool that a function is."""
    return ToolSpec(function.name, msgspec.json.encode(_Declaration("function", function)).decode())
