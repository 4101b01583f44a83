"""A node of the token forest: one completion, and the path that leads to it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from turnstile.conversation import Message, Past
from turnstile.generation import NodeRef
from turnstile.history.digest import Key
from turnstile.journal import CallStarted, SampledChoice
from turnstile.reasons import IncompleteReason, NoteCode
from turnstile.tokens import IdRun, IdsDigest

_ID_BYTES = 4
_SPLICEABLE = frozenset({IncompleteReason.EXPANSION_UNKNOWN})
"""Doubts that do not touch the ids that are held: those have one placeholder an image."""


class _Joined(NamedTuple):
    """All ids of a path."""

    run: IdRun
    digest: IdsDigest
    """Of `run`."""


class HeldRuns:
    """The joined ids of the few paths that were asked for last; all other paths are kept in pieces.

    A path is joined from the nearest kept ancestor, so that a turn on the newest leaf copies memory and joins
    two pieces. Shared by the nodes of one forest.
    """

    _KEPT = 2

    def __init__(self) -> None:
        self._kept: dict[NodeRef, _Joined] = {}

    def of(self, node: Node) -> IdRun:
        """All ids from the root to the node's last one."""
        return self._at(node).run

    def digest_of(self, node: Node) -> IdsDigest:
        """Of all ids from the root to the node's last one."""
        return self._at(node).digest

    def _at(self, node: Node) -> _Joined:
        found = self._kept.pop(node.ref, None) or self._joined(node)
        self._kept[node.ref] = found
        while len(self._kept) > self._KEPT:
            del self._kept[next(iter(self._kept))]
        return found

    def _joined(self, node: Node) -> _Joined:
        trail: list[Node] = []
        at: Node | None = node
        while at is not None and at.ref not in self._kept:
            trail.append(at)
            at = at.parent
        run, digest = (IdRun(), IdsDigest()) if at is None else self._kept[at.ref]
        joined = bytearray(run.packed)
        for step in reversed(trail):
            kept = step.started.held_length * _ID_BYTES
            if kept < len(joined):
                del joined[kept:]
                digest = IdsDigest().then(IdRun(bytes(joined)))
            for own in (step.started.added_A, step.choice.ids_S):
                joined += own.packed
                digest = digest.then(own)
        return _Joined(IdRun(bytes(joined)), digest)


class Step(NamedTuple):
    """A completion's place among the messages of a path that it is on."""

    node: Node
    own_start: int
    """Index of the first of its `own_M`."""
    own_end: int
    """Index behind the last of them, which is that of its answer."""
    has_answer: bool
    """False: the next completion goes on writing its answer, and the answer of that one stands there."""


@dataclass(frozen=True, slots=True, eq=False, repr=False, weakref_slot=True)
class Node:
    """One completion. Immutable; only the list of its children grows with the forest."""

    ref: NodeRef
    parent: Node | None
    started: CallStarted
    choice: SampledChoice
    message: Message
    """The answer as it stands in a history: as handed out, behind the text that it continues if it continues any."""
    prefill: Message | None
    """The assistant message that this completion continues."""
    prompt_key: Key
    """Of head and messages before `message`."""
    key: Key
    """Of head and messages including `message`."""
    length_M: int
    """Number of messages on the path, the answer included."""
    before: Past
    """Of the messages before `message`."""
    runs: HeldRuns
    _grown: list[weakref.ref[Node]] = field(default_factory=list[weakref.ref["Node"]], init=False)
    """The children so far. Weak, since they hold their parent: without a cycle, a forest leaves memory when it is
    dropped, and not when Python's collector next walks over all that is held, which is next to never (cli/serve.py)."""

    def grow(self, child: Node) -> None:
        """Take a new child, which the forest keeps alive; only the forest does this."""
        self._grown.append(weakref.ref(child))

    @property
    def children(self) -> Sequence[Node]:
        """Completions whose prompt keeps ids of this path, in commit order, as long as their forest is held."""
        return [child for grown in self._grown if (child := grown()) is not None]

    @property
    def held_T(self) -> IdRun:
        """All ids from the root to this completion's last: what the engine was fed and what it sampled."""
        return self.runs.of(self)

    @property
    def length(self) -> int:
        """Number of ids in `held_T`, without joining them."""
        return self.started.held_length + len(self.started.added_A) + len(self.choice.ids_S)

    @property
    def is_incomplete(self) -> bool:
        """Whether nothing may be built on its ids: they cannot be trusted as a whole, or there are none.

        What would be built on an answer without ids is a close right behind the generation prompt (case D4).
        """
        return any(reason not in _SPLICEABLE for reason in self.choice.incomplete) or not self.choice.ids_S

    @property
    def is_resumed(self) -> bool:
        """Whether it is the beginning of an answer that broke off: a client kept its finished items and went on."""
        return any(note.code is NoteCode.CONTINUED_FROM_ABORTED for note in self.choice.notes)

    @property
    def continues_parent(self) -> bool:
        """Whether this completion goes on writing its parent's answer: both are then one message, `message`."""
        return self.prefill is not None and not self.started.new_M

    @property
    def own_M(self) -> tuple[Message, ...]:
        """The messages between the parent's answer and this one's, without the one that is continued."""
        new_M = self.started.new_M
        return new_M[:-1] if self.prefill is not None else new_M

    @property
    def history_M(self) -> tuple[Message, ...]:
        """The messages before `message`, as the client sent or was handed them."""
        pieces: list[tuple[Message, ...]] = []
        node: Node | None = self
        while node is not None:
            pieces.append(node.own_M)
            if node.parent is not None and not node.continues_parent:
                pieces.append((node.parent.message,))
            node = node.parent
        return tuple(chain.from_iterable(reversed(pieces)))

    @property
    def past(self) -> Past:
        """What `messages_M` have in common, without a look at them."""
        return self.before.then((self.message,))

    @property
    def messages_M(self) -> tuple[Message, ...]:
        """`history_M` and the answer itself."""
        return (*self.history_M, self.message)

    def steps_back(self) -> Iterator[Step]:
        """Where each completion of the path stands among `messages_M`, from this one to the root."""
        at = self.length_M
        node: Node | None = self
        is_continued = False
        while node is not None:
            end = at if is_continued else at - 1
            at = end - len(node.own_M)
            yield Step(node, at, end, not is_continued)
            is_continued = node.continues_parent
            node = node.parent

    def path(self) -> tuple[Node, ...]:
        """The nodes from the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return tuple(reversed(nodes))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Node):
            return NotImplemented
        return (self.ref, self.key, self.started, self.choice) == (other.ref, other.key, other.started, other.choice)

    def __hash__(self) -> int:
        return hash(self.ref)

    def __repr__(self) -> str:
        return f"Node({self.ref})"
