"""How clients spell the answers that they bring back, remembered, so that each spelling is compared once.

Clients repeat themselves: a history that was accepted at one turn comes back letter by letter at the next. What
is remembered is only the outcome of `compare_answers`, which is the same whenever it is asked for.
"""

from __future__ import annotations

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


class Echo(msgspec.Struct, frozen=True):
    """The messages that a completion adds to its path, as a client last sent them."""

    own_M: Sequence[Message]
    """With the message before them, whose ids say which of its calls they answer."""
    answer: Message
    verdict: Same
    """What the answer was found to be, compared with the one that was handed out."""
    own_forgiven: tuple[tuple[int, NoteCode], ...] = ()
    """The same of the answers in `own_M` that the client wrote: index behind the message before them, and what."""


class Echoes:
    """The last accepted spelling of what each completion adds to its path, where it is not the one that is held."""

    def __init__(self) -> None:
        self._echoes: dict[NodeRef, Echo] = {}

    def remember(self, end: Node, spoken_M: Sequence[Message], forgiven: Iterable[tuple[int, NoteCode]]) -> None:
        """Keep how a client spelled a path.

        Args:
            end: the completion at its end.
            spoken_M: messages that begin with those of the path; each was found to be equal.
            forgiven: index of a message, and what was overlooked in it.
        """
        codes: dict[int, tuple[NoteCode, ...]] = {}
        for at, code in forgiven:
            codes[at] = (*codes.get(at, ()), code)
        for node, start, at, has_answer in end.steps_back():
            answer = spoken_M[at] if has_answer else node.message
            if tuple(spoken_M[start:at]) != node.own_M or answer != node.message:
                self._echoes[node.ref] = Echo(
                    tuple(spoken_M[_before(start) : at]),
                    answer,
                    Same(codes.get(at, ()) if has_answer else ()),
                    tuple((own - start, code) for own in range(start, at) for code in codes.get(own, ())),
                )

    def verdict(self, node: Node, sent: Message) -> Same | None:
        """That a message is a completion's answer, if that is known without comparing their meaning."""
        if node.message == sent:
            return EXACT
        echo = self._echoes.get(node.ref)
        return echo.verdict if echo is not None and echo.answer == sent else None

    def repeated(self, nodes: Iterable[Node], messages: Sequence[Message]) -> Repeat | None:
        """The first of some completions whose whole path some messages begin with, in known spellings."""
        for node in nodes:
            if node.length_M <= len(messages):
                forgiven = self._repeats(node, messages)
                if forgiven is not None:
                    return Repeat(node, forgiven)
        return None

    def _repeats(self, end: Node, messages: Sequence[Message]) -> tuple[tuple[int, NoteCode], ...] | None:
        forgiven: list[tuple[int, NoteCode]] = []
        for node, start, at, has_answer in end.steps_back():
            if has_answer:
                verdict = self.verdict(node, messages[at])
                if verdict is None:
                    return None
                forgiven += ((at, code) for code in verdict.forgiven)
            if messages[start:at] != node.own_M:
                echo = self._echoes.get(node.ref)
                if echo is None or echo.own_M != messages[_before(start) : at]:
                    return None
                forgiven += ((start + offset, code) for offset, code in echo.own_forgiven)
        return tuple(forgiven)


def _before(start: int) -> int:
    return max(0, start - 1)
