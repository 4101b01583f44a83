"""What of a call's JSON a trajectory can hold: checked before the call begins, since a rollout is written whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import orjson

from turnstile.conversation import Call, JsonText
from turnstile.errors import CallerError

MAX_NESTING = 200
"""Of one value: a trajectory stands some levels around it, and `orjson` writes 254."""


def check_keepable(call: Call, nesting: int = MAX_NESTING) -> None:
    """See that a call's tools and template arguments can be written again, which other fields are text for.

    Args:
        call: what was read.
        nesting: levels that a value may have; no more than `MAX_NESTING`.

    Raises: CallerError that names the field.
    """
    for index, tool in enumerate(call.tools):
        check_json(tool.declaration, f"tools[{index}]", nesting)
    check_json(call.template_kwargs, "chat_template_kwargs", nesting)


def check_json(written: JsonText, path: str, nesting: int = MAX_NESTING) -> None:
    """See that JSON can be read into numbers and written again.

    Args:
        written: JSON text.
        path: the client's field that it comes from.
        nesting: levels that it may have.

    Raises: CallerError if a number in it fits no double, or it is nested too deeply.
    """
    try:
        value: object = orjson.loads(written)
    except orjson.JSONDecodeError as error:
        problem = f"`{path}` cannot be kept: {error}"
        raise CallerError(problem, "Send numbers that a double holds", code="invalid_value", param=path) from None
    # Each level begins with a bracket, and values with so few of them need no second look.
    if written.count("{") + written.count("[") > nesting and _is_deep(value, nesting):
        problem = f"`{path}` is nested more than {nesting} levels deep"
        raise CallerError(problem, "Send JSON with less nesting", code="invalid_value", param=path)


def _is_deep(value: object, nesting: int) -> bool:
    level = [value]
    for _ in range(nesting + 1):
        level = [inner for each in level for inner in _inside(each)]
        if not level:
            return False
    return True


def _inside(value: object) -> Iterable[object]:
    match value:
        case dict():
            return cast("dict[str, object]", value).values()
        case list():
            return cast("list[object]", value)
        case _:
            return ()
