"""Prompts as JSON, written from where the last prompt of the same conversation ended."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from turnstile.tokens import IdRun

_KEPT_BYTES = 64 * 1024 * 1024
_PIECE = 16_384
"""So many ids take about a millisecond."""
_KEPT_S = 600.0
"""A conversation that was quiet for so long is mostly over; one that is not costs one prompt written whole."""


class _Kept(NamedTuple):
    """The last prompt of a conversation."""

    prompt_T: IdRun
    json: bytes
    at_s: float

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.json) + len(self.prompt_T.packed)


def ids_json(ids: list[int]) -> bytes:
    """Ids as the inside of a JSON array."""
    return msgspec.json.encode(ids)[1:-1]


async def _written(ids_T: IdRun) -> bytes:
    """The same of a run of any length; the event loop waits for no more than a piece."""
    if len(ids_T) <= _PIECE:
        return ids_json(ids_T.tolist())
    return await asyncio.to_thread(_in_pieces, ids_T)


def _in_pieces(ids_T: IdRun) -> bytes:
    # Turning a whole run into Python integers would keep the interpreter from all other threads meanwhile.
    starts = range(0, len(ids_T), _PIECE)
    return b",".join(ids_json(ids_T.slice(start, start + _PIECE).tolist()) for start in starts)


class PromptJson:
    """Remembers the JSON of each conversation's last prompt, within a bound in bytes and in time.

    A turn costs what it adds: the JSON of a prompt that begins with the remembered one is that one's and the rest.
    """

    def __init__(self, kept_bytes: int = _KEPT_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        """Remember nothing yet.

        Args:
            kept_bytes: of all prompts that are remembered, ids and JSON.
            clock: seconds, never going back.
        """
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._room = kept_bytes
        self._clock = clock

    @property
    def remembered(self) -> tuple[str, ...]:
        """The conversations whose last prompt is known, the one that was asked for last at the end."""
        return tuple(self._kept)

    async def of(self, affinity: str, prompt_T: IdRun) -> bytes:
        """The inside of the prompt's JSON array.

        Args:
            affinity: prompts with the same value are likely to begin alike; empty = nothing is remembered.
            prompt_T: int32[T].
        """
        known_T, known = self._taken(affinity)
        if not known_T or not prompt_T.startswith(known_T):
            written = await _written(prompt_T)
        elif len(known_T) == len(prompt_T):
            written = known
        else:
            written = known + b"," + await _written(prompt_T.slice(len(known_T)))
        if affinity:
            self._remember(affinity, _Kept(prompt_T, written, self._clock()))
        return written

    def _taken(self, affinity: str) -> tuple[IdRun, bytes]:
        kept = self._kept.pop(affinity, None)
        if kept is None:
            return IdRun(), b""
        self._room += kept.size
        return kept.prompt_T, kept.json

    def _remember(self, affinity: str, last: _Kept) -> None:
        # Another prompt of the conversation may have been written while this one was.
        self._taken(affinity)
        self._kept[affinity] = last
        self._room -= last.size
        while self._kept:
            longest_quiet = next(iter(self._kept.values()))
            if self._room >= 0 and last.at_s - longest_quiet.at_s <= _KEPT_S:
                return
            self._kept.popitem(last=False)
            self._room += longest_quiet.size
