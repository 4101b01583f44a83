"""What is known of each call of a forest, and which answers its clients are known to have had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from turnstile.conversation import Message
from turnstile.journal import AnswerUndelivered, CallFailed, CallJoined, CallStarted, TurnCommitted


class CallState(msgspec.Struct, frozen=True):
    """What is known of one planned call. At most one of `committed` and `failed` is set; neither: it is running."""

    started: CallStarted
    committed: TurnCommitted | None = None
    failed: CallFailed | None = None
    joined: tuple[CallJoined, ...] = ()
    """Repeats of the request that were given this call's answer."""
    undelivered: AnswerUndelivered | None = None
    """The last that is known of a client who left before the answer had arrived."""
    heard_since: bool = False
    """Whether a repeat was given the answer after that."""
    heard: bool = False
    """Whether a later record shows that the answer arrived (docs/decisions/0038)."""

    @property
    def never_arrived(self) -> bool:
        """Whether the last that is known of an answer is that nobody took it."""
        return self.undelivered is not None and not self.heard_since and not self.heard

    @property
    def is_open(self) -> bool:
        """Whether the call has not ended."""
        return self.committed is None and self.failed is None


def newly_heard(started: CallStarted, calls: Mapping[str, CallState]) -> Iterator[str]:
    """The calls whose answers a new one is the first to show to have arrived.

    It names those whose last byte left to a client that was there. It also builds on answers or brings them back, which
    whoever sent it must have had; unless it is known that their last byte never left, which a repeat may yet ask for.
    """
    named = set(started.heard)
    shown = {ref.call_id for ref in started.replayed}
    if started.parent is not None:
        shown.add(started.parent.call_id)
    arrived = [calls[call_id] for call_id in named if call_id in calls]
    for call_id in shown | named:
        state = calls.get(call_id)
        if state is None or state.committed is None or state.heard:
            continue
        # Of equal answers to equal requests, nothing tells which one it builds on: it is one that is named.
        if call_id in named or not (state.never_arrived or any(_is_alike(state, other) for other in arrived)):
            yield call_id


def _is_alike(state: CallState, other: CallState) -> bool:
    return state.started.body_digest == other.started.body_digest and _said(state) == _said(other)


def _said(state: CallState) -> list[Message]:
    return [] if state.committed is None else [choice.message for choice in state.committed.choices]
