"""Answers that a client names by a mark which it brought back, whatever it made of their thinking.

Text and calls of such an answer are compared like any other's: a mark says which answer the client means, not that it
left it as it was. The thinking alone is taken as it was handed out: clients shorten it, or were never shown it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.conversation import Message, answer_id
from turnstile.generation import NodeRef
from turnstile.history.forest import Forest
from turnstile.history.node import Node


class Recognised(msgspec.Struct, frozen=True):
    """A request's messages with the thinking of marked answers as it was handed out."""

    messages: tuple[Message, ...]
    restored_M: tuple[int, ...]
    """Where the client's own was another."""


def recognised(forest: Forest, messages: tuple[Message, ...]) -> Recognised:
    """Put the thinking of marked answers back; a mark of another rollout, or of nothing that is held, says nothing."""
    if not any(message.answer_id for message in messages):
        return Recognised(messages, ())
    known = tuple(_known(forest, message) for message in messages)
    return Recognised(known, _restored(messages, known))


def is_named(forest: Forest, node: Node, message: Message) -> bool:
    """Whether a message's mark is that of a completion."""
    return bool(message.answer_id) and message.answer_id == _id_of(forest, node.ref)


def _known(forest: Forest, message: Message) -> Message:
    ref = _ref_in(forest, message.answer_id) if message.answer_id else None
    if ref is None:
        return message
    try:
        held = forest.node(ref).choice.message.reasoning
    except KeyError:
        return message
    same = held.strip() == message.reasoning.strip()
    return message if same else msgspec.structs.replace(message, reasoning=held)


def _restored(sent: Sequence[Message], known: Sequence[Message]) -> tuple[int, ...]:
    # Thinking that did not come back at all is no difference, as without a mark.
    return tuple(at for at, (was, now) in enumerate(zip(sent, known, strict=True)) if was.reasoning and was is not now)


def _id_of(forest: Forest, ref: NodeRef | str) -> str:
    opened = forest.opened
    return "" if opened is None else answer_id(opened.rollout_id, opened.attempt, str(ref))


def _ref_in(forest: Forest, named: str) -> NodeRef | None:
    prefix = _id_of(forest, "")
    if not prefix or not named.startswith(prefix):
        return None
    call_id, _, choice = named.removeprefix(prefix).partition(".")
    if not choice:
        return NodeRef(call_id)
    return NodeRef(call_id, int(choice)) if choice.isascii() and choice.isdecimal() and len(choice) < 4 else None
