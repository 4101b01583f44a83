"""Results of tools that failed: chat templates know no mark for them, so their text says so (docs/decisions/0014)."""

from __future__ import annotations

from turnstile.conversation import Part, Text

_MARK = "Error: "
_WORDS = ("error", "<tool_use_error>")


def marked(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """What a failed tool said, with `Error: ` in front, unless it already begins with the word."""
    match parts:
        case (Text(text=text), *rest):
            says_so = text.lstrip().lower().startswith(_WORDS)
            return parts if says_so else (Text(_MARK + text), *rest)
        case _:
            return (Text(_MARK.rstrip()), *parts)
