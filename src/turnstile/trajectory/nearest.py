"""How far a prompt agrees with what was held before it."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from operator import attrgetter

import msgspec

from turnstile.generation import NodeRef
from turnstile.history.forest import Node
from turnstile.tokens import IdRun, first_difference


class Nearest(msgspec.Struct, frozen=True):
    """The held sequence that agrees longest with a prompt."""

    ref: NodeRef
    """Its last completion."""
    agrees_T: int
    """Leading ids that are equal: the index of the first token that differs."""


class _Held(msgspec.Struct, frozen=True):
    packed: bytes
    ref: NodeRef


class HeldSequences:
    """The longest runs held so far, sorted by their bytes.

    Whatever the order of bytes means, the run with the longest common beginning stands next to the place where the
    prompt itself would stand, so a fork costs two comparisons and not one with each sequence.
    """

    def __init__(self, ids_of: Callable[[Node], IdRun] = attrgetter("held_T")) -> None:
        """Hold nothing yet.

        Args:
            ids_of: all ids of a completion's path, as they are to be compared.
        """
        self._ids_of = ids_of
        self._sorted: list[_Held] = []

    def add(self, node: Node) -> None:
        """Hold a completion's path; its parent's run is a beginning of it and goes, unless its end was cut off."""
        parent = node.parent
        if parent is not None and node.started.held_length == parent.length:
            at = bisect_left(self._sorted, self._ids_of(parent).packed, key=attrgetter("packed"))
            if at < len(self._sorted) and self._sorted[at].ref == parent.ref:
                del self._sorted[at]
        insort(self._sorted, _Held(self._ids_of(node).packed, node.ref), key=attrgetter("packed"))

    def nearest(self, prompt_T: IdRun) -> Nearest | None:
        """The held sequence that agrees longest with a prompt; None if nothing is held."""
        at = bisect_left(self._sorted, prompt_T.packed, key=attrgetter("packed"))
        found = [
            Nearest(held.ref, _agreement(prompt_T, IdRun(held.packed)))
            for held in self._sorted[max(0, at - 1) : at + 1]
        ]
        return max(found, key=attrgetter("agrees_T"), default=None)


def _agreement(a: IdRun, b: IdRun) -> int:
    at = first_difference(a, b)
    return len(a) if at is None else at
