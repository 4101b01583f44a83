"""Finding markers in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

WHITESPACE = " \t\r\n"
"""What a template puts round its markers; wider spaces are the model's own text."""


class Hit(msgspec.Struct, frozen=True):
    """Where a marker stands."""

    start: int
    marker: str

    @property
    def end(self) -> int:
        """Index behind the marker."""
        return self.start + len(self.marker)


def first_hit(text: str, markers: Sequence[str]) -> Hit | None:
    """The marker that starts first; of several at one place, the longest."""
    hits = [Hit(start, marker) for marker in markers if (start := text.find(marker)) >= 0]
    return min(hits, key=lambda hit: (hit.start, -len(hit.marker)), default=None)


def held_from(text: str, markers: Sequence[str]) -> int:
    """Index from which the end of a text may still become a marker; the text's length if it cannot.

    No whole marker may be in the text.
    """
    longest = max((len(marker) for marker in markers), default=1)
    for start in range(max(0, len(text) - longest + 1), len(text)):
        tail = text[start:]
        if any(marker.startswith(tail) for marker in markers):
            return start
    return len(text)


def without_trailing_space(text: str, end: int) -> int:
    """Index behind the last character of text[:end] that is no whitespace."""
    return len(text[:end].rstrip(WHITESPACE))
