"""How clients spell the answers that they bring back, remembered, so that each spelling is compared once.

Clients repeat themselves: a history that was accepted at one turn comes back letter by letter at the next. What
is remembered is only the outcome of `compare_answers`, which is the same whenever it is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import msgspec

from turnstile.conversation import Message
from turnstile.generation import NodeRef
from turnstile.history.equality import Same
from turnstile.history.node import Node
from turnstile.reasons import NoteCode

EXACT = Same()


class Repeat(msgspec.Struct, frozen=True):
    """A path that a request repeats as it was last sent."""

    node: Node
    forgiven: tuple[tuple[int, NoteCode], ...]
    """Index of the message, and what is overlooked in it."""


class Echoes:
    """The last accepted spelling of each answer that did not come back as it was handed out."""

    def __init__(self) -> None:
        self._echoes: dict[NodeRef, tuple[Message, Same]] = {}

    def remember(self, node: Node, sent: Message, verdict: Same) -> None:
        """Keep what a message was found to be: another spelling of a completion's answer."""
        self._echoes[node.ref] = (sent, verdict)

    def verdict(self, node: Node, sent: Message) -> Same | None:
        """That a message is a completion's answer, if that is known without comparing their meaning."""
        if node.message == sent:
            return EXACT
        echo = self._echoes.get(node.ref)
        return echo[1] if echo is not None and echo[0] == sent else None

    def repeated(self, nodes: Iterable[Node], messages: Sequence[Message]) -> Repeat | None:
        """The first of some completions whose whole path some messages begin with, in known spellings."""
        for node in nodes:
            forgiven = self._repeats(node, messages)
            if forgiven is not None:
                return Repeat(node, forgiven)
        return None

    def _repeats(self, end: Node, messages: Sequence[Message]) -> tuple[tuple[int, NoteCode], ...] | None:
        at = end.length_M
        if at > len(messages):
            return None
        forgiven: list[tuple[int, NoteCode]] = []
        node: Node | None = end
        is_part_of_next = False
        while node is not None:
            if not is_part_of_next:
                at -= 1
                verdict = self.verdict(node, messages[at])
                if verdict is None:
                    return None
                forgiven += zip(itertools.repeat(at), verdict.forgiven)
            own_M = node.own_M
            at -= len(own_M)
            if own_M != messages[at : at + len(own_M)]:
                return None
            is_part_of_next = node.continues_parent
            node = node.parent
        return tuple(forgiven)
