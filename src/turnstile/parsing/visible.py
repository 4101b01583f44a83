"""Sampled ids to the text that a reader sees."""

from __future__ import annotations

import codecs
from typing import final

import msgspec

from turnstile.tokens import IdRun, Vocabulary


class HiddenToken(msgspec.Struct, frozen=True):
    """A sampled control token that is in no text."""

    index_S: int
    name: str


@final
class VisibleText:
    """Decodes ids over their bytes, never token by token: a character may be spread over several.

    Control tokens are left out as if they had not been sampled, except those that are markers of the answer's
    format. Bytes that are no UTF-8 become U+FFFD, one for each broken character, and so does a character that
    the answer's end cuts off.
    """

    def __init__(self, vocabulary: Vocabulary, markers: frozenset[str], stop_ids: frozenset[int]) -> None:
        """Decode with a vocabulary; `stop_ids` are never text, whatever they are else."""
        self._vocabulary = vocabulary
        self._markers = frozenset(marker.encode() for marker in markers)
        self._stop_ids = stop_ids
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.count_S = 0
        self.hidden: list[HiddenToken] = []

    def feed(self, ids_S: IdRun) -> str:
        """The text that these ids complete."""
        seen = b"".join(self._bytes(token_id, at) for at, token_id in enumerate(ids_S, self.count_S))
        self.count_S += len(ids_S)
        return self._decoder.decode(seen)

    @property
    def is_settled(self) -> bool:
        """Whether the ids so far end with a whole character."""
        return not self._decoder.getstate()[0]

    def finish(self) -> str:
        """U+FFFD if the ids ended inside a character, else nothing."""
        return self._decoder.decode(b"", final=True)

    def _bytes(self, token_id: int, index_S: int) -> bytes:
        # An id outside the vocabulary is an engine fault that the checks of the whole answer name.
        if not 0 <= token_id < self._vocabulary.size:
            return b""
        said = self._vocabulary.token_bytes(token_id)
        is_stop = token_id in self._stop_ids
        if not is_stop and (said in self._markers or not self._vocabulary.is_special(token_id)):
            return said
        self.hidden.append(HiddenToken(index_S, said.decode("utf-8", "replace")))
        return b""
