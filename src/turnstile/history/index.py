"""The index of a forest: which completions stand at, behind and beyond a run of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turnstile.generation import NodeRef
from turnstile.history.digest import Key, weak
from turnstile.history.node import Node


@dataclass(slots=True)
class Prefix:
    """What is held about one run of messages. Lists are in commit order."""

    through: Node
    """The latest completion that goes on from the run, or whose own prompt or answer ends it."""
    answers: list[Node] = field(default_factory=list[Node])
    """Completions whose answer is the run's last message."""
    samples: list[Node] = field(default_factory=list[Node])
    """Completions whose answer stands right behind the run."""
    continuations: list[Node] = field(default_factory=list[Node])
    """Completions that go on writing the run's last message."""


class PrefixIndex:
    """Keys to completions. Only the forest adds."""

    def __init__(self) -> None:
        self._prefixes: dict[Key, Prefix] = {}
        self._minted: dict[str, list[Node]] = {}
        self._handed_out: dict[Key, list[Node]] = {}
        self._ranks: dict[NodeRef, int] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrefixIndex):
            return NotImplemented
        return (self._prefixes, self._minted, self._handed_out) == (
            other._prefixes,
            other._minted,
            other._handed_out,
        )

    __hash__ = None  # type: ignore[assignment]  # it grows

    def get(self, key: Key) -> Prefix | None:
        """What is held about a run of messages; None if no completion's path holds it."""
        return self._prefixes.get(key)

    def minted(self, call_id: str) -> Sequence[Node]:
        """The completions that handed out a tool call under this id; one, where ids are minted as they should be."""
        return self._minted.get(call_id, ())

    def heads_of_answer(self, content: Key) -> frozenset[str]:
        """The fingerprints of the heads under which an answer of this weak digest was handed out."""
        return frozenset(node.started.head for node in self._handed_out.get(content, ()))

    def handed_out(self, content: Key) -> Sequence[Node]:
        """The completions whose answer has this weak digest, in commit order."""
        return self._handed_out.get(content, ())

    def rank(self, ref: NodeRef) -> int:
        """How many completions were committed before this one. Raises: KeyError if it is not held."""
        return self._ranks[ref]

    def add(self, node: Node, prompt_keys: Sequence[Key], whole: Key) -> None:
        """Enter a completion.

        Args:
            node: the completion.
            prompt_keys: the key behind which its call's new messages stand, and the key behind each of them.
            whole: the key of its whole prompt, the text that it continues included.
        """
        for key in (*prompt_keys, node.prompt_key, node.key):
            self._at(key, node).through = node
        self._prefixes[node.prompt_key].samples.append(node)
        self._prefixes[node.key].answers.append(node)
        if node.prefill is not None:
            self._at(whole, node).continuations.append(node)
        for call in node.choice.message.calls:
            if call.call_id:
                self._minted.setdefault(call.call_id, []).append(node)
        self._ranks[node.ref] = len(self._ranks)
        for content in dict.fromkeys((weak(node.message), weak(node.choice.message))):
            self._handed_out.setdefault(content, []).append(node)

    def _at(self, key: Key, node: Node) -> Prefix:
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = self._prefixes[key] = Prefix(node)
        return prefix
