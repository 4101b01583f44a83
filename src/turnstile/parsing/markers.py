"""Finding markers in text that arrives in pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import final

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


@final
class Markers:
    """Texts to look for, compiled once: every sampled token asks."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Look for these; empty ones are none."""
        self.texts = tuple(dict.fromkeys(text for text in texts if text))
        self._whole = _any_of(self.texts)
        self._initial = _any_of({text[0] for text in self.texts})
        self._longest = max(map(len, self.texts), default=0)

    def __bool__(self) -> bool:
        return bool(self.texts)

    def first_hit(self, text: str) -> Hit | None:
        """The marker that starts first; of several at one place, the longest."""
        found = self._whole.search(text)
        return Hit(found.start(), found.group()) if found else None

    def held_from(self, text: str) -> int:
        """Index from which the end of a text may still become a marker; the text's length if it cannot.

        No whole marker may be in the text.
        """
        for found in self._initial.finditer(text, max(0, len(text) - self._longest + 1)):
            tail = text[found.start() :]
            if any(marker.startswith(tail) for marker in self.texts):
                return found.start()
        return len(text)


_NOTHING = re.compile(r"(?!)")


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern for any of the texts, the longest first."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else _NOTHING


def without_trailing_space(text: str, end: int) -> int:
    """Index behind the last character of text[:end] that is no whitespace."""
    return len(text[:end].rstrip(WHITESPACE))
