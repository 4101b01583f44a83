"""How a tool is declared to the model: in OpenAI's chat form in every dialect, so that equal tools give equal ids."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from turnstile.conversation import ToolSpec
from turnstile.errors import CallerError
from turnstile.protocols.json_body import snippet

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


def offered_name(name: str, offered: Container[str], path: str) -> str:
    """The name of a tool that a choice asks for.

    Args:
        name: as the client wrote it, or as the model is told of it.
        offered: the names of the request's tools.
        path: where the name stands.

    Raises: CallerError if no tool of the request has it.
    """
    if name not in offered:
        problem = f"`{path}` names `{snippet(name)}`, which is not among the tools"
        raise CallerError(problem, "Name one of the tools of the request", code="invalid_value", param=path)
    return name
