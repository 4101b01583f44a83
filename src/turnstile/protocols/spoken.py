"""When a message says something."""

from __future__ import annotations

from collections.abc import Sequence

from turnstile.conversation import Part, Text

_EMPTY = Text("")


def spoken(parts: Sequence[Part]) -> tuple[Part, ...]:
    """What a message says: its parts as they are, and nothing if all of them are empty texts."""
    # A loop: all messages of a history come by at each turn, and the first part tells.
    for part in parts:
        if part != _EMPTY:
            return tuple(parts)
    return ()
