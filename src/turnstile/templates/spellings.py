"""One pattern that finds any of many texts, the longest where several begin alike.

A vocabulary may have thousands of control tokens, all beginning with the same character: written as a tree, a look at
one place of a text costs the length of a token, not their number.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence


def any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    """A pattern that finds each of the texts; None if there is none. Empty texts are left out."""
    ordered = sorted({text for text in texts if text})
    return re.compile(_tree(ordered)) if ordered else None


def _tree(texts: Sequence[str]) -> str:
    """A pattern for sorted texts without repeats; an empty one among them makes it optional."""
    ends_here, longer = not texts[0], [text for text in texts if text]
    branches = [_branch(list(group)) for _, group in itertools.groupby(longer, key=lambda text: text[0])]
    if not branches:
        return ""
    if len(branches) == 1 and not ends_here:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if ends_here else ''}"


def _branch(texts: Sequence[str]) -> str:
    """A pattern for sorted texts that begin with the same character."""
    shared = _shared(texts[0], texts[-1])
    return re.escape(texts[0][:shared]) + _tree([text[shared:] for text in texts])


def _shared(first: str, last: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = zip(first, last, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(last)))
