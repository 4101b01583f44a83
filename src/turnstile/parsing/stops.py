"""Stop strings: the text ends before the first one, however its pieces arrive."""

from __future__ import annotations

from typing import final

from turnstile.parsing.markers import Markers


@final
class StopFilter:
    """Lets text through up to the first stop string, holding back what may become one.

    The stop string that is complete first counts; of two that end on one character, the longer.
    What follows it is dropped: engines may sample on until the step in which it was completed ends.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        """Look for these; empty strings are none."""
        self._stops = Markers(stops)
        self._held: str = ""
        self.matched: str = ""
        """The stop string that ended the text; empty while none has."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing is held back."""
        return not self._held

    def feed(self, text: str) -> str:
        """What can be said to be before any stop string."""
        if not self._stops:
            return text
        if self.matched:
            return ""
        text = self._held + text
        if self._stops.first_hit(text):
            found = ((text.find(stop), stop) for stop in self._stops.texts)
            _, start, self.matched = min((start + len(stop), start, stop) for start, stop in found if start >= 0)
            self._held = ""
            return text[:start]
        cut = self._stops.held_from(text)
        self._held = text[cut:]
        return text[:cut]

    def finish(self) -> str:
        """What was held back and became no stop string."""
        held, self._held = self._held, ""
        return held
