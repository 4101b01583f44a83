"""Which parts of a head are not what they were, for a root that stands there because of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile, zip_longest

from turnstile.conversation import Message, Part, Role
from turnstile.generation import Head
from turnstile.history.forest import Forest

_LATEST = 16
"""How many of the latest roots a head is compared with: a harness has a few heads, and one that changes at each turn
has as many as turns."""


def changed_parts(forest: Forest, head: Head, messages: Sequence[Message]) -> tuple[str, ...]:
    """The parts of a head that differ from the most similar of the latest ones; of equals, from the latest.

    `system[i]` is the i-th block of the leading system text. Empty if there is no earlier head, or nothing differs.

    Args:
        forest: what is held, without the call.
        head: the call's.
        messages: the call's, whose leading system messages belong to its head.
    """
    roots = (state.started for state in reversed(tuple(forest.calls.values())) if state.started.parent is None)
    told = (
        tuple(_differing((forest.heads[root.head], root.new_M), (head, messages))) for root in islice(roots, _LATEST)
    )
    return min(told, key=len, default=())


def _differing(one: tuple[Head, Sequence[Message]], other: tuple[Head, Sequence[Message]]) -> Iterator[str]:
    (was, was_M), (now, now_M) = one, other
    for name in Head.__struct_fields__:
        if name != "fingerprint" and getattr(was, name) != getattr(now, name):
            yield name
    for at, (before, after) in enumerate(zip_longest(_system_parts(was_M), _system_parts(now_M))):
        if before != after:
            yield f"system[{at}]"


def _system_parts(messages: Sequence[Message]) -> Iterator[Part]:
    for message in takewhile(lambda each: each.role is Role.SYSTEM, messages):
        yield from message.parts
