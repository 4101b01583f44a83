"""Ids that the Responses dialect mints. They say which answer they belong to, and nothing else.

An answer's id is the same in every dialect; here it stands in the response's id and in its items' ids. It is no
secret: it only helps to find an answer again.
"""

from __future__ import annotations

import enum

import msgspec

_RESPONSE = "resp_"
_MOST_DIGITS = 6


class ItemKind(enum.StrEnum):
    """What an output item is; the value is the beginning of its id."""

    REASONING = "rs"
    MESSAGE = "msg"
    FUNCTION_CALL = "fc"
    CUSTOM_CALL = "ctc"
    CUSTOM_CALL_AS_WRITTEN = "ctcw"
    """A custom call whose arguments were not the object that was asked for: its input is what the model wrote."""


_KINDS = {kind.value: kind for kind in ItemKind}
_NO_PIECES = ("", "", "")


class ItemId(msgspec.Struct, frozen=True):
    """An item of an answer."""

    answer_id: str
    kind: ItemKind
    at: int
    """Which of the answer's items of this sort, from 0; calls of all kinds are counted together."""

    def __str__(self) -> str:
        return f"{self.kind}_{self.answer_id}-{self.at}"


def response_id(answer_id: str) -> str:
    """The id of a response."""
    return _RESPONSE + answer_id


def answer_id_of(response: str) -> str:
    """The answer that a response id belongs to; empty if it is none of ours."""
    return response.removeprefix(_RESPONSE) if response.startswith(_RESPONSE) else ""


def item_id_of(text: str | None) -> ItemId | None:
    """An item id that was minted here; None for any other text."""
    word, answer_id, at = _pieces(text)
    return ItemId(answer_id, _KINDS[word], int(at)) if answer_id else None


def owner_of(text: str | None) -> str:
    """The answer that an item id belongs to; empty if it was not minted here."""
    return _pieces(text)[1]


def _pieces(text: str | None) -> tuple[str, str, str]:
    """The beginning, the answer's id and the number of an item id; three empty ones for any other text."""
    word, _, rest = (text or "").partition("_")
    if word in _KINDS:
        answer_id, _, at = rest.rpartition("-")
        if at.isdecimal() and at.isascii() and len(at) <= _MOST_DIGITS:
            return word, answer_id, at
    return _NO_PIECES
