"""Stop strings: the text ends before the first one, however its pieces arrive."""

from __future__ import annotations

from typing import final

from turnstile.parsing.markers import held_from


@final
class StopFilter:
    """Lets text through up to the first stop string, holding back what may become one.

    The stop string that is complete first counts; of two that end on one character, the longer.
    What follows it is dropped: engines may sample on until the step in which it was completed ends.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        """Look for these; empty strings are none."""
        self._stops = tuple(stop for stop in stops if stop)
        self._held: str = ""
        self.matched: str = ""
        """The stop string that ended the text; empty while none has."""

    def feed(self, text: str) -> str:
        """What can be said to be before any stop string."""
        if not self._stops:
            return text
        if self.matched:
            return ""
        text = self._held + text
        ends = [(start + len(stop), start, stop) for stop in self._stops if (start := text.find(stop)) >= 0]
        if ends:
            _, start, self.matched = min(ends)
            self._held = ""
            return text[:start]
        cut = held_from(text, self._stops)
        self._held = text[cut:]
        return text[:cut]

    def finish(self) -> str:
        """What was held back and became no stop string."""
        held, self._held = self._held, ""
        return held
