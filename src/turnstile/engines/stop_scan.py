"""Where an answer ends: the first token that completes a stop string, or a stop token.

Stop strings are searched in bytes, over all that was sampled, so one that is spread over several requests to the
engine is found as well. The token that completes it is kept and what lies after it is dropped from every array.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.generation import Draw
from turnstile.tokens import Vocabulary


class StopHit(msgspec.Struct, frozen=True):
    """The answer ends with the token at `index` of the tokens just fed."""

    index: int
    stop_string: str
    """Empty: a stop token ended it."""


class StopScan:
    """Looks for the end of one answer, fed as it is sampled."""

    def __init__(self, draw: Draw, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._stop_ids = draw.stop_ids
        self._strings = tuple((text.encode(), text) for text in draw.stop if text)
        self._keep = max((len(needle) for needle, _ in self._strings), default=1) - 1
        self._tail = b""

    def feed(self, tokens: Sequence[int]) -> StopHit | None:
        """The end, if it lies in these tokens. After a hit the scan is over."""
        for index, token in enumerate(tokens):
            # The first stop string that is complete wins; of several in one token, the one that starts first.
            found = self._completed(token)
            if found is not None:
                return StopHit(index, found)
            if token in self._stop_ids:
                return StopHit(index, "")
        return None

    def _completed(self, token: int) -> str | None:
        if not self._strings or self._vocabulary.is_special(token):
            return None
        text = self._tail + self._vocabulary.token_bytes(token)
        starts = [(text.find(needle), string) for needle, string in self._strings]
        self._tail = text[-self._keep :] if self._keep else b""
        return min(((start, string) for start, string in starts if start >= 0), default=(0, None))[1]
