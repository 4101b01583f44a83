"""What becomes of each completion of a forest: which sequences there are, and which of them owns it.

Source: docs/reference/trajectory.md, "From calls to sequences".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import msgspec

from turnstile.conversation import CallKind
from turnstile.generation import NodeRef
from turnstile.history.calls import CallState
from turnstile.history.forest import Forest, Node
from turnstile.journal import SampledChoice, SuspectLogprobs
from turnstile.reasons import DiscardReason, IncompleteReason, NoteCode
from turnstile.trajectory.rules import Compaction, Rules, Unselected, Weights
from turnstile.trajectory.spelling import Spelling
from turnstile.trajectory.summaries import used_summaries


class CallLine(msgspec.Struct, frozen=True):
    """One line of `calls`: one choice of a call, or a call that failed."""

    call_id: str
    state: CallState
    node: Node | None
    """None: it failed."""


class Fates:
    """The lines, discards, leaves and owners of one forest. Computed once, from a forest that no longer grows."""

    def __init__(self, forest: Forest, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        """What the user chose."""
        self._forest = forest
        self._nodes = tuple(forest.nodes)
        self.spelling = Spelling(forest)
        """The ids as engines ran them, images in their places."""

    @cached_property
    def lines(self) -> tuple[CallLine, ...]:
        """Calls that ended, in order of start, one line a choice."""
        by_call: dict[str, list[Node]] = {}
        for node in self._nodes:
            by_call.setdefault(node.ref.call_id, []).append(node)
        lines: list[CallLine] = []
        for call_id, state in self._forest.calls.items():
            nodes = by_call.get(call_id, [])
            lines += [CallLine(str(node.ref), state, node) for node in nodes]
            if not nodes and not (state.is_open and self._forest.finished is None):
                lines.append(CallLine(call_id, state, None))
        return tuple(lines)

    @cached_property
    def running(self) -> tuple[str, ...]:
        """Calls that the engine may still be answering."""
        return tuple(started.call_id for started in self._forest.open_calls) if not self._forest.finished else ()

    @cached_property
    def line_of(self) -> Mapping[NodeRef, int]:
        """The index of each completion's line."""
        return {line.node.ref: at for at, line in enumerate(self.lines) if line.node is not None}

    @cached_property
    def discarded(self) -> Mapping[NodeRef, DiscardReason]:
        """Completions that nobody consumed.

        An answer whose last byte was not delivered counts as consumed once a repeat of the request was given it,
        or a later call builds on it or brings it back. Of several choices, those that were not continued are
        unselected as soon as one was; if none was, nothing tells which the client used, and all are kept.
        """
        started = [state.started for state in self._forest.calls.values()]
        continued = {each.parent for each in started} | {ref for each in started for ref in each.replayed}
        # A beginning that no later call was planned on is nobody's, like the rest of its answer.
        begun = (node.ref for node in self._nodes if node.is_resumed)
        reasons = {ref: DiscardReason.ABORTED_TAIL for ref in begun if ref not in continued}
        for state in self._forest.calls.values():
            refs = [NodeRef(state.started.call_id, choice.choice) for choice in _choices(state)]
            if any(ref in continued for ref in refs):
                if self.rules.unselected is Unselected.TRAINED:
                    continue
                unselected = dict.fromkeys(refs, DiscardReason.UNSELECTED_CHOICE)
                reasons |= {ref: reason for ref, reason in unselected.items() if ref not in continued}
            elif state.undelivered is not None and state.never_arrived:
                reasons |= dict.fromkeys(refs, state.undelivered.reason)
        return reasons

    @cached_property
    def whole(self) -> frozenset[NodeRef]:
        """Completions with nothing incomplete on the way from their root."""
        whole: set[NodeRef] = set()
        for node in self._nodes:
            if (node.parent is None or node.parent.ref in whole) and not self.incomplete_reasons(node):
                whole.add(node.ref)
        return frozenset(whole)

    def incomplete_reasons(self, node: Node) -> tuple[IncompleteReason, ...]:
        """Why a completion cannot be trusted as a whole; empty if it can."""
        choice = node.choice
        reasons = dict.fromkeys(choice.incomplete)
        if choice.ids_S and (choice.logprobs_S is None or len(choice.logprobs_S.unknown) == len(choice.ids_S)):
            reasons[IncompleteReason.LOGPROBS_MISSING] = None
        if choice.logprobs_S is not None and len(choice.logprobs_S) != len(choice.ids_S):
            reasons[IncompleteReason.COUNT_MISMATCH] = None
        if not self.spelling.is_known(node.started):
            reasons[IncompleteReason.EXPANSION_UNKNOWN] = None
        return tuple(reasons)

    @cached_property
    def leaves(self) -> tuple[Node, ...]:
        """Completions that end a sequence, in the order of their lines.

        A kept completion is a leaf if no kept one keeps all its ids, and also if it is whole and none that does is
        whole: an incomplete answer never costs the tokens before it their sequence. Nor does an auxiliary one: what
        a harness asks for itself behind an agent's turns gets a sequence of its own.
        """
        leaves: list[Node] = []
        for node in self._nodes:
            if node.ref in self.discarded:
                continue
            extending = [child for child in node.children if self._extends(child, node)]
            if node.ref in self.whole:
                extending = [child for child in extending if child.ref in self.whole]
            if not self.is_auxiliary(node):
                extending = [child for child in extending if not self.is_auxiliary(child)]
            if not extending:
                leaves.append(node)
        return tuple(sorted(leaves, key=lambda node: self.line_of[node.ref]))

    @cached_property
    def owners(self) -> Mapping[NodeRef, int]:
        """The sequence that each kept completion is trained in: the first whole one that holds all its ids.

        If no sequence that holds it is whole, it is the first one. Sequences that end in an auxiliary call come last.
        """

        def rank(at: int) -> tuple[bool, bool]:
            leaf = self.leaves[at]
            return leaf.ref not in self.whole, self.is_auxiliary(leaf)

        owners: dict[NodeRef, int] = {}
        for at in sorted(range(len(self.leaves)), key=rank):
            for node in self.fully_held(self.leaves[at]):
                owners.setdefault(node.ref, at)
        return owners

    @cached_property
    def trainers(self) -> Mapping[NodeRef, tuple[int, ...]]:
        """The sequences in which each kept completion may be trained: its owner alone, unless its weight is split.

        It is split over the sequences that hold all its ids and are as good as its owner: whole, and no harness's own.
        """
        if self.rules.weights is not Weights.SPLIT:
            return {ref: (owner,) for ref, owner in self.owners.items()}
        shared: dict[NodeRef, list[int]] = {}
        for at, leaf in enumerate(self.leaves):
            for node in self.fully_held(leaf):
                owner = self.leaves[self.owners[node.ref]]
                if leaf is owner or (leaf.ref in self.whole and not self.is_auxiliary(leaf)):
                    shared.setdefault(node.ref, []).append(at)
        return {ref: tuple(sequences) for ref, sequences in shared.items()}

    def is_auxiliary(self, node: Node) -> bool:
        """Whether a harness asked for a completion for itself, and the user did not choose to train it."""
        return node.started.kind is CallKind.AUXILIARY and node.ref not in self._trained_summaries

    @cached_property
    def _trained_summaries(self) -> frozenset[NodeRef]:
        return used_summaries(self._forest) if self.rules.compaction is Compaction.TRAINED else frozenset()

    def distrusts(self, node: Node) -> bool:
        """Whether the rollout's policy masks a completion because its log-probabilities are not plausible."""
        opened = self._forest.opened
        if opened is None or opened.suspect_logprobs is SuspectLogprobs.MARK:
            return False
        return any(note.code is NoteCode.LOGPROBS_ALL_ZERO for note in node.choice.notes)

    def fully_held(self, leaf: Node) -> tuple[Node, ...]:
        """The completions on a leaf's path of which no id was cut off, root first."""
        held: list[Node] = []
        shortest = leaf.length
        for node in reversed(leaf.path()):
            if node.length <= shortest:
                held.append(node)
            shortest = min(shortest, node.started.held_length)
        return tuple(reversed(held))

    def _extends(self, child: Node, node: Node) -> bool:
        return child.started.held_length == node.length and child.ref not in self.discarded


def _choices(state: CallState) -> tuple[SampledChoice, ...]:
    return () if state.committed is None else state.committed.choices
