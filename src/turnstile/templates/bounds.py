"""What the filters and string methods of a chat template may make, told before they make it.

Operators are bounded where they are called (`sandbox`). A filter or a method can make as much out of little: a width
in a format, a separator between many items, a replacement for each character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any, TypeAlias, cast

from jinja2.exceptions import SecurityError

MAX_SIZE = 2**26
"""Characters of one render's output, and items or characters of one value that a template makes."""
MAX_ITEMS = 100_000
"""Groups that a filter makes, as many as a `range` of the sandbox has."""

_WIDE = re.compile(r"\*|\d{6,}")
_WIDTH_OF_FIELD = re.compile(r":[^}]*\d{6,}")

Filter: TypeAlias = Callable[..., Any]


def refuse_size(size: int) -> None:
    """Raises: SecurityError if a value of so many characters or items is too large."""
    if size > MAX_SIZE:
        raise SecurityError(f"the template makes a value of more than {MAX_SIZE} characters or items")


def refuse_percent(template: str, arguments: object) -> None:
    """Refuse `template % arguments` if it could be huge. Raises: SecurityError."""
    if _WIDE.search(template):
        raise SecurityError("the template formats with a width that is too large")
    refuse_size(len(template) + template.count("%") * _longest(arguments))


def refuse_method(text: str, name: str, arguments: tuple[object, ...], named: Mapping[str, object]) -> None:
    """Refuse a call of a method of a text if its result could be huge. Raises: SecurityError."""
    match name, arguments:
        case "format" | "format_map", _:
            if _WIDTH_OF_FIELD.search(text):
                raise SecurityError("the template formats with a width that is too large")
            # A number may be the width of another field.
            numbers = [abs(value) for value in (*arguments, *named.values()) if isinstance(value, int)]
            refuse_size(len(text) + text.count("{") * max([_longest((arguments, dict(named))), *numbers]))
        case "join", (items, *_):
            _refuse_join(_listed(items), text)
        case "replace", (str() as old, str() as new, *_):
            _refuse_replace(text, old, new)
        case _:
            pass


def bounded_filters(filters: Mapping[str, Filter]) -> dict[str, Filter]:
    """The filters that can make much of little, each with a bound in front."""
    bounds: dict[str, Callable[..., None]] = {
        "batch": _bound_groups,
        "center": _bound_numbers,
        "format": _bound_format,
        "indent": _bound_indent,
        "join": _bound_join,
        "random": _refuse_chance,
        "replace": _bound_replace,
        "slice": _bound_groups,
        "sum": _bound_sum,
        "urlize": _bound_product,
        "wordwrap": _bound_product,
    }
    return {name: _behind(bound, filters[name]) for name, bound in bounds.items()}


def _behind(bound: Callable[..., None], made: Filter) -> Filter:
    def bounded(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - any filter's arguments
        # Jinja2 puts what a filter asks for (an environment, a context) in front of the value.
        start = 1 if hasattr(made, "jinja_pass_arg") else 0
        value, *others = arguments[start:]
        if not isinstance(value, str | bytes | list | tuple | Mapping) and isinstance(value, Iterable):
            value = _gathered(cast("Iterable[object]", value))
        bound(value, *others, **named)
        return made(*arguments[:start], value, *others, **named)

    if (asks_for := getattr(made, "jinja_pass_arg", None)) is not None:
        vars(bounded)["jinja_pass_arg"] = asks_for
    return bounded


def _refuse_chance(*_: object, **__: object) -> None:
    raise SecurityError("the template makes another text each time")


def _bound_numbers(_: object, *arguments: object, **named: object) -> None:
    for value in (*arguments, *named.values()):
        refuse_size(abs(value) if isinstance(value, int) else 0)


def _bound_groups(_: object, *arguments: object, **named: object) -> None:
    if any(isinstance(value, int) and value > MAX_ITEMS for value in (*arguments, *named.values())):
        raise SecurityError(f"the template makes more than {MAX_ITEMS} groups or items")


def _bound_format(value: object, *arguments: object, **named: object) -> None:
    refuse_percent(str(value), named or arguments)


def _bound_indent(value: object, *arguments: object, **named: object) -> None:
    widths = [len(each) if isinstance(each, str) else each for each in (*arguments, *named.values())]
    width = max([4, *(abs(each) for each in widths if isinstance(each, int))])
    lines = str(value).count("\n") + 1
    refuse_size(lines * width)


def _bound_join(value: object, *arguments: object, **named: object) -> None:
    separator = arguments[0] if arguments else named.get("d", "")
    _refuse_join(_listed(value), str(separator))


def _bound_replace(value: object, *arguments: object, **named: object) -> None:
    old, new = (str(each) for each in (*arguments[:2], *(named.get(name, "") for name in ("old", "new")))[:2])
    _refuse_replace(str(value), old, new)


def _bound_sum(value: object, *_: object, **__: object) -> None:
    refuse_size(sum(map(_length, _listed(value))))


def _bound_product(value: object, *arguments: object, **named: object) -> None:
    refuse_size(len(str(value)) * (1 + max([_longest(arguments), _longest(named)])))


def _refuse_join(items: Iterable[object], separator: str) -> None:
    lengths = [_length(item) for item in items]
    refuse_size(sum(lengths) + len(lengths) * len(separator))


def _refuse_replace(text: str, old: str, new: str) -> None:
    refuse_size(len(text) + text.count(old) * len(new))


def _listed(value: object) -> Iterable[object]:
    return cast("Iterable[object]", value) if isinstance(value, list | tuple | str) else ()


def _gathered(items: Iterable[object]) -> list[object]:
    """What another filter makes one by one."""
    gathered: list[object] = []
    size = 0
    for item in items:
        size += 1 + _length(item)
        refuse_size(size)
        gathered.append(item)
    return gathered


def _length(value: object) -> int:
    return len(cast("Sized", value)) if isinstance(value, str | list | tuple) else 0


def _longest(value: object) -> int:
    """Length of the longest text in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return max(map(_longest, cast("Mapping[object, object]", value).values()), default=0)
    if isinstance(value, list | tuple):
        return max(map(_longest, cast("list[object]", value)), default=0)
    return 0
