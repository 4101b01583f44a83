"""Prompts as JSON, written from where the last prompt of the same conversation ended."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from turnstile.tokens import IdRun

_KEPT_BYTES = 64 * 1024 * 1024


def ids_json(ids: list[int]) -> bytes:
    """Ids as the inside of a JSON array."""
    return msgspec.json.encode(ids)[1:-1]


class PromptJson:
    """Remembers the JSON of each conversation's last prompt, within a bound in bytes.

    A turn costs what it adds: the JSON of a prompt that begins with the remembered one is that one's and the rest.
    """

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept: OrderedDict[str, tuple[IdRun, bytes]] = OrderedDict()
        self._room = kept_bytes

    def of(self, affinity: str, prompt_T: IdRun) -> bytes:
        """The inside of the prompt's JSON array.

        Args:
            affinity: prompts with the same value are likely to begin alike; empty = nothing is remembered.
            prompt_T: int32[T].
        """
        known_T, known = self._kept.pop(affinity, (IdRun(), b""))
        self._room += len(known) + len(known_T.packed)
        if not known_T or not prompt_T.startswith(known_T):
            written = ids_json(prompt_T.tolist())
        elif len(known_T) == len(prompt_T):
            written = known
        else:
            written = known + b"," + ids_json(prompt_T.slice(len(known_T)).tolist())
        if affinity:
            self._remember(affinity, prompt_T, written)
        return written

    def _remember(self, affinity: str, prompt_T: IdRun, written: bytes) -> None:
        self._kept[affinity] = (prompt_T, written)
        self._room -= len(written) + len(prompt_T.packed)
        while self._room < 0 and self._kept:
            _, (dropped_T, dropped) = self._kept.popitem(last=False)
            self._room += len(dropped) + len(dropped_T.packed)
