"""Which broken-off answer a request goes on from, by the finished items that it brings back (public case F6).

A broken-off answer is no turn, so nothing is matched with it by itself. It becomes one, cut at its last finished item
that came back, only where a request holds those items right behind the very prompt that they were sampled from.
"""

from __future__ import annotations

import msgspec

from turnstile.conversation import Call, Message, Role
from turnstile.generation import Head, NodeRef
from turnstile.history.digest import Key, extended, head_key
from turnstile.history.equality import Same, ToolDefaults, compare_answers, says_something
from turnstile.history.forest import Forest
from turnstile.history.recognised import recognised
from turnstile.history.walk import walk


class Resumed(msgspec.Struct, frozen=True):
    """The beginning of a broken-off answer that came back."""

    ref: NodeRef
    length_S: int
    """How many of its ids."""


def resumable(forest: Forest, head: Head, call: Call) -> Resumed | None:
    """The first broken-off answer that a request goes on from and that is not held yet.

    Args:
        forest: what is held. Only its memory of spellings grows.
        head: the head under which the request is rendered.
        call: the request.
    """
    if not forest.has_broken_off:
        return None
    defaults = ToolDefaults(call.tools)
    walked = walk(forest, head_key(head.fingerprint), recognised(forest, call.messages).messages, defaults)
    key = walked.keys[-1]
    for at in range(walked.held_length_M, len(walked.spoken_M)):
        message = walked.spoken_M[at]
        if message.role is Role.ASSISTANT:
            return _beginning(forest, key, message, defaults)
        key = extended(key, message, walked.positions_M[at])
    return None


def _beginning(forest: Forest, key: Key, message: Message, defaults: ToolDefaults) -> Resumed | None:
    """The longest beginning that a message is, of the answers to one prompt; of equals that of the latest."""
    if not (says_something(message) or message.reasoning):
        return None
    for broken in reversed(forest.broken_off(key)):
        for taken in broken.beginnings():
            if isinstance(compare_answers(taken.message, message, defaults), Same):
                return Resumed(broken.ref, taken.length_S)
    return None
