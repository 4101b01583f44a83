"""Which messages behind the held prefix are answers of the model, so that their own ids may stand there again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnstile.conversation import Message
from turnstile.generation import NodeRef, Replay
from turnstile.history.digest import weak
from turnstile.history.equality import Same, ToolDefaults, compare_answers
from turnstile.history.forest import Forest
from turnstile.history.node import Node

_COMPARED = 64
"""How many equal answers one message is compared with, latest first: bounds a rollout that says the same each turn."""


class Recogniser:
    """Recognises the answers of one request, first to last."""

    def __init__(self, forest: Forest, head: str, defaults: ToolDefaults, parent: NodeRef | None) -> None:
        """Begin behind a held answer.

        Args:
            forest: what is held.
            head: the fingerprint of the head under which the request is rendered.
            defaults: of the request's tools.
            parent: the held answer; None: nothing is held.
        """
        self._forest = forest
        self._head = head
        self._defaults = defaults
        self._reached = -1 if parent is None else forest.index.rank(parent)

    def replay(self, message: Message, index: int, message_index: int) -> Replay | None:
        """What was sampled of a message; None if it is no answer of this head, or has no ids of its own to put back.

        Args:
            message: an assistant message.
            index: its place among the messages behind the held prefix.
            message_index: its place in the client's list.
        """
        node = self._chosen(message)
        if node is None:
            return None
        self._reached = self._forest.index.rank(node.ref)
        choice = node.choice
        return Replay(index, message_index, node.ref, choice.ids_S, node.message, choice.cut, choice.stop_string)

    def _chosen(self, message: Message) -> Node | None:
        named = [node for call in message.calls for node in self._forest.index.minted(call.call_id)]
        for candidates in (named, self._forest.index.handed_out(weak(message))[-_COMPARED:]):
            equal = [node for node in dict.fromkeys(candidates) if self._is_put_back(node, message)]
            if equal:
                return self._nearest(equal)
        return None

    def _is_put_back(self, node: Node, message: Message) -> bool:
        # An answer that the client began has ids that were not sampled in it.
        has_own_ids = node.prefill is None and bool(node.choice.ids_S) and not node.is_incomplete
        if not has_own_ids or node.started.head != self._head:
            return False
        return isinstance(compare_answers(node.message, message, self._defaults), Same)

    def _nearest(self, equal: Sequence[Node]) -> Node:
        """The next one behind the answer in front of it, else the latest; of samples of one prompt the delivered one.

        Answers of equal words come back in the order in which they were given.
        """
        index = self._forest.index
        ahead = [node for node in equal if index.rank(node.ref) > self._reached]
        first = min(ahead, key=lambda node: index.rank(node.ref)) if ahead else None
        rivals = equal if first is None else [node for node in ahead if node.prompt_key == first.prompt_key]
        return max(rivals, key=lambda node: (self._was_delivered(node), index.rank(node.ref)))

    def _was_delivered(self, node: Node) -> bool:
        return self._forest.calls[node.ref.call_id].undelivered is None


def replays_of(recogniser: Recogniser, messages: Iterator[tuple[Message, int, int]]) -> tuple[Replay, ...]:
    """The answers among messages that are given with their two indices."""
    return tuple(found for each in messages if (found := recogniser.replay(*each)) is not None)
