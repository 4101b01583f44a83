"""Which summaries of a compaction a rollout went on from."""

from __future__ import annotations

import re
from typing import Final

from turnstile.conversation import CallKind, Role
from turnstile.generation import NodeRef
from turnstile.history.calls import CallState
from turnstile.history.forest import Forest, Node

COMPACTION: Final = "compaction"
"""The purpose by which the quirks of harnesses mark a call for a summary."""
_PASSAGE_CHARS: Final = 16
_TAG: Final = re.compile(r"</?\w[^<>]*>")


def used_summaries(forest: Forest) -> frozenset[NodeRef]:
    """The summaries that a later turn of an agent quotes in what its client said anew.

    Harnesses wrap a summary, or cut its thinking off the front, so it is known by its last line of some length.
    """
    used: set[NodeRef] = set()
    for node in forest.nodes:
        if node.started.kind is CallKind.AUXILIARY and node.started.purpose == COMPACTION:
            passage = _passage(node.message.text)
            if passage and any(_quotes(state, passage, node) for state in forest.calls.values()):
                used.add(node.ref)
    return frozenset(used)


def _passage(text: str) -> str:
    """The last line of an answer that is long enough to be known again, without tags; all of it if none is."""
    lines = [line.strip() for line in _TAG.sub("\n", text).splitlines()]
    return next((line for line in reversed(lines) if len(line) >= _PASSAGE_CHARS), "\n".join(lines).strip())


def _quotes(state: CallState, passage: str, summary: Node) -> bool:
    started = state.started
    if state.committed is None or started.kind is not CallKind.TURN or started.call_id == summary.ref.call_id:
        return False
    is_later = started.started_at >= summary.started.started_at
    said = (message.text for message in started.new_M if message.role is not Role.ASSISTANT)
    return is_later and any(passage in text for text in said)
