"""Which sampled tokens llama.cpp gives no probability for, and which entry belongs to which token.

The server drops the entry of every token after which the text of *that request* ends inside a UTF-8 character.
It judges by the last four bytes only, and control tokens add no text. Ids repeat, so entries are placed by
replaying that rule on the tokens' bytes, and each placement is then checked against the entry's own id.

Source: llama.cpp `tools/server/server-context.cpp`, `process_token`, and `common/unicode` `validate_utf8`;
measured in docs/decisions/0003-llamacpp-exact-streaming.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from turnstile.engines.llamacpp_shapes import ProbabilityEntry
from turnstile.tokens import Vocabulary

_LEADS = ((0xE0, 0xC0, 2), (0xF0, 0xE0, 3), (0xF8, 0xF0, 4))
"""(mask, value, length of the character) of a first byte."""


def ends_inside_character(text: bytes) -> bool:
    """Whether llama.cpp takes the text for unfinished: a first byte in its last four lacks followers."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        for mask, value, length in _LEADS:
            if byte & mask == value:
                return back < length
    return False


class Aligned(msgspec.Struct, frozen=True):
    """What is known of each token of a request."""

    entries_S: tuple[ProbabilityEntry | None, ...]
    gaps: tuple[int, ...]
    """Indices at which the server says nothing by its own rule."""


def align(tokens_S: Sequence[int], entries: Sequence[ProbabilityEntry], vocabulary: Vocabulary) -> Aligned:
    """Place a request's entries on its tokens; a token has None where no entry can be proved to be its own.

    Shapes: tokens [S], entries [<= S] -> [S].
    """
    hidden = _placed(tokens_S, entries, _whole_after(tokens_S, vocabulary, hidden=vocabulary.is_special))
    if _used(hidden) == len(entries):
        return hidden
    # A server started with --special prints control tokens, which makes the text whole again after them.
    shown = _placed(tokens_S, entries, _whole_after(tokens_S, vocabulary, hidden=lambda _: False))
    return max(hidden, shown, key=_used)


def _used(aligned: Aligned) -> int:
    return sum(entry is not None for entry in aligned.entries_S)


def _whole_after(tokens_S: Sequence[int], vocabulary: Vocabulary, hidden: Callable[[int], bool]) -> list[bool]:
    tail = b""
    whole: list[bool] = []
    for token in tokens_S:
        tail = (tail + (b"" if hidden(token) else vocabulary.token_bytes(token)))[-4:]
        whole.append(not ends_inside_character(tail))
    return whole


def _placed(tokens_S: Sequence[int], entries: Sequence[ProbabilityEntry], whole_S: Sequence[bool]) -> Aligned:
    placed: list[ProbabilityEntry | None] = [None] * len(tokens_S)
    next_entry = 0
    for at, (token, whole) in enumerate(zip(tokens_S, whole_S, strict=True)):
        if not whole:
            continue
        if next_entry >= len(entries) or entries[next_entry].id != token:
            break
        placed[at] = entries[next_entry]
        next_entry += 1
    return Aligned(tuple(placed), tuple(at for at, whole in enumerate(whole_S) if not whole))
