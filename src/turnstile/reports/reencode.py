"""Text to ids again and again, where each text mostly repeats the one before it."""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import final

from turnstile.templates.served import Served
from turnstile.templates.tokenizer import AddedToken
from turnstile.tokens import IdRun, join

KEPT_CHARACTERS = 8_000_000
"""Of the pieces whose ids are remembered: some 50 MB."""


@final
class Reencoder:
    """Encodes whole conversations of one model, each piece between two of its stop tokens only once.

    A growing history is encoded in time that follows its new part, and pieces that several rollouts share (the
    system text, the tools) are encoded for the first of them. Not for several threads at once.
    """

    def __init__(self, served: Served, kept_characters: int = KEPT_CHARACTERS) -> None:
        """Know nothing yet.

        Args:
            served: the model.
            kept_characters: of the pieces whose ids are remembered.
        """
        self._kept_characters = kept_characters
        self._tokenizer = served.tokenizer
        cuts = [re.escape(token.text) for token in cut_tokens(served)]
        self._cut = re.compile("|".join(cuts)) if cuts else None
        self._known: OrderedDict[str, IdRun] = OrderedDict()
        self._characters = 0

    @property
    def remembered(self) -> Sequence[str]:
        """The pieces whose ids are known, the one that was used last at the end."""
        return tuple(self._known)

    def encode(self, text: str) -> IdRun:
        """The ids of a text, the same that the tokenizer gives for it as a whole. Raises: CallerError as that does."""
        # A piece begins with a stop token: what stands before an added token never decides what it becomes.
        cuts = [found.start() for found in self._cut.finditer(text)] if self._cut else []
        return join([self._piece(text[start:end]) for start, end in itertools.pairwise((0, *cuts, len(text)))])

    def _piece(self, piece: str) -> IdRun:
        if (known := self._known.get(piece)) is not None:
            self._known.move_to_end(piece)
            return known
        ids = self._known[piece] = self._tokenizer.encode(piece)
        self._characters += len(piece)
        while self._characters > self._kept_characters:
            forgotten, _ = self._known.popitem(last=False)
            self._characters -= len(forgotten)
        return ids


def cut_tokens(served: Served) -> tuple[AddedToken, ...]:
    """The stop tokens at which a text may be cut without a change of ids.

    Excluded are tokens that look at their surroundings, and those whose text can be a part of another token's.
    """
    added = served.tokenizer.added
    stops = [token for token in added if token.id in served.stop_ids]
    return tuple(
        token
        for token in stops
        if token.special and token.text and not (token.lstrip or token.normalized)
        if not any(_overlap(other.text, token.text) for other in added if other is not token)
    )


def _overlap(other: str, text: str) -> bool:
    """Whether an occurrence of `other` can hold the beginning of one of `text` behind its own first character."""
    return any(text.startswith(other[at:]) or other[at:].startswith(text) for at in range(1, len(other)))
