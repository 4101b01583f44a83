"""Why a request is no plain continuation of a held leaf: the reason, the place and both texts.

The request is laid beside the nearest held path, the one that it shares the longest run of messages with; `d`
is the first message that differs. What the client did is read from what it sends from there on:

    an answer, and another answer is held there       ASSISTANT_EDITED
    no answer where exactly one was held              ASSISTANT_TURN_OMITTED
    something else, then the very answer that the
        path has next: only what stood before it
        was changed                                   MESSAGE_EDITED
    another result of a held tool call                MESSAGE_EDITED (a call has one result: it was run again)
    something else, then an answer from elsewhere     HISTORY_REWRITTEN
    something else that quotes a held answer in full  HISTORY_REWRITTEN (compaction)
    the same but for its images, or another message
        without them and the answer that the path has
        next                                          MEDIA_CHANGED (screenshots that were dropped or blanked)
    something else, and no held answer behind it      REWOUND; with no answer in common, a new conversation

A message is thus *edited* where the request goes on as the path did, and the client *rewound* where it goes on
in another way from an answer that it has in common with the path.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.conversation import Message, Role
from turnstile.generation import Forked, Head, History, Root
from turnstile.history.digest import extended, image_places, weak
from turnstile.history.equality import (
    Different,
    Pairing,
    ToolDefaults,
    compare,
    says_something,
    snippet,
)
from turnstile.history.forest import Forest
from turnstile.history.node import Node
from turnstile.history.walk import Walk
from turnstile.reasons import ForkReason, RootReason

_QUOTED_CHARS = 12
"""A shorter answer, such as `Done.`, may stand in any text without being quoted."""
_QUOTABLE_LEAVES = 16
"""How many of the latest leaves a compaction may quote: bounds the search."""


class Request(msgspec.Struct, frozen=True):
    """A request and what was found to be held of it."""

    forest: Forest
    head: Head
    walked: Walk
    defaults: ToolDefaults
    parent: Node | None
    covered_M: int
    """How many spoken messages the parent's path stands for."""
    incomplete_M: int | None
    """Index of a deeper matched answer without trustworthy ids."""

    @property
    def spoken_M(self) -> Sequence[Message]:
        """The request in the messages of held paths."""
        return self.walked.spoken_M


class _Parting(msgspec.Struct, frozen=True):
    """Where a request leaves the nearest held path."""

    at: int
    """Index of the first different message, of both."""
    path_M: Sequence[Message]
    fork: Forked
    """The place and both texts; the reason is still to be found."""

    @property
    def was(self) -> Message | None:
        """The held message there; None if the path ends."""
        return self.path_M[self.at] if self.at < len(self.path_M) else None


def departure(request: Request) -> Root | Forked | None:
    """Why the request is no plain continuation; None if it is one, or a new sample of a held prompt."""
    if request.incomplete_M is not None:
        at = request.walked.origins_M[request.incomplete_M]
        return Forked(ForkReason.NODE_INCOMPLETE, message_index=at)
    if request.parent is None:
        return _without_parent(request)
    if _is_plain(request, request.parent):
        return None
    parting = _parting(request)
    if parting is None or (parting.was is None and not request.parent.children):
        return None
    return msgspec.structs.replace(parting.fork, reason=_reason(request, parting))


def _is_plain(request: Request, parent: Node) -> bool:
    new_M = request.spoken_M[request.covered_M :]
    # A child of the same messages went on writing the answer and added nothing to it.
    children = [child for child in parent.children if child.key != parent.key]
    if not children:
        return _next_answer(request, request.covered_M) is None
    contents = [weak(message) for message in new_M]
    return any(
        [weak(message) for message in child.started.new_M[: len(new_M)]] == contents for child in parent.children
    )


def _without_parent(request: Request) -> Root | Forked:
    forest = request.forest
    if not forest.calls:
        return Root(RootReason.FIRST_CALL)
    if request.head.fingerprint not in forest.heads:
        return Root(RootReason.HEAD_CHANGED)
    earlier = _earlier_opening(request)
    if earlier is not None:
        return earlier
    parting = _parting(request)
    if parting is None or parting.was is None:
        return Root(RootReason.NEW_CONVERSATION)
    is_other_opening = (
        _reason_of_messages(request, parting) is ForkReason.REWOUND and parting.was.role is not Role.ASSISTANT
    )
    return Root(RootReason.NEW_CONVERSATION) if is_other_opening else _because(parting, _reason(request, parting))


def _earlier_opening(request: Request) -> Root | Forked | None:
    """A new sample of a prompt without a parent came about as the first one did."""
    key = request.walked.keys[0]
    pairing = Pairing()
    for message in request.spoken_M:
        key = extended(key, message, pairing.place(message))
    history: History | None = request.forest.opening(key)
    return history if isinstance(history, Root | Forked) else None


def _because(parting: _Parting, reason: ForkReason) -> Forked:
    return msgspec.structs.replace(parting.fork, reason=reason)


def _parting(request: Request) -> _Parting | None:
    """Where the request leaves the nearest held path; None if nothing is held, or nothing differs."""
    leaf = _nearest_leaf(request)
    if leaf is None:
        return None
    path_M, spoken_M = leaf.messages_M, request.spoken_M
    for at in range(request.covered_M, len(spoken_M)):
        origin = request.walked.origins_M[at]
        if at == len(path_M):
            fork = Forked(ForkReason.REWOUND, message_index=origin, now=snippet(spoken_M[at]))
            return _Parting(at, path_M, fork)
        verdict = compare(path_M[at], spoken_M[at], request.defaults)
        if at == request.walked.held_length_M and not isinstance(verdict, Different):
            # Equal by itself, yet the keys part: a tool result that answers another call.
            verdict = Different(snippet(path_M[at]), snippet(spoken_M[at]))
        if isinstance(verdict, Different):
            fork = Forked(ForkReason.REWOUND, origin, verdict.char_offset, verdict.was, verdict.now)
            return _Parting(at, path_M, fork)
    return None


def _nearest_leaf(request: Request) -> Node | None:
    """The latest leaf of the path that shares the longest run of messages, beyond the parent if there is one."""
    prefix = request.forest.index.get(request.walked.keys[request.walked.held_length_M])
    node = None
    if prefix is not None:
        node = next((answer for answer in reversed(prefix.answers) if answer.children), prefix.through)
    parent = request.parent
    # A parent that is a leaf has no path of its own to compare with; an equal answer, or a rendered copy of it, may.
    if parent is not None and (node is None or (parent.children and parent not in node.path())):
        node = parent
    while node is not None and node.children:
        node = node.children[-1]
    return node


def _next_answer(request: Request, start: int) -> Message | None:
    """The first message from an index on that was handed out under the same head."""
    for message in request.spoken_M[start:]:
        if message.role is Role.ASSISTANT and says_something(message):
            heads = request.forest.index.heads_of_answer(weak(message))
            if request.head.fingerprint in heads:
                return message
    return None


def _reason(request: Request, parting: _Parting) -> ForkReason:
    return ForkReason.MEDIA_CHANGED if _is_of_images(request, parting) else _reason_of_messages(request, parting)


def _is_of_images(request: Request, parting: _Parting) -> bool:
    """Whether what differs first is an image: the rest is equal, or the request goes on as the path did."""
    was, sent = parting.was, request.spoken_M[parting.at]
    if was is None or image_places(was) == image_places(sent):
        return False
    is_same_text = was.role is sent.role and was.text == sent.text
    return is_same_text or _skipped(parting, _next_answer(request, parting.at)) == 0


def _reason_of_messages(request: Request, parting: _Parting) -> ForkReason:
    sent = request.spoken_M[parting.at]
    came_back = _next_answer(request, parting.at)
    skipped = _skipped(parting, came_back)
    if sent.role is Role.ASSISTANT and came_back is not sent:
        return _reason_of_changed_answer(parting, came_back)
    if parting.was is not None and parting.was.role is Role.ASSISTANT:
        return _reason_of_missing_answer(request, parting, skipped)
    if came_back is not None:
        is_edit = skipped == 0 and sent.role is not Role.ASSISTANT
        return ForkReason.MESSAGE_EDITED if is_edit else ForkReason.HISTORY_REWRITTEN
    return _reason_of_other_message(request, parting)


def _reason_of_changed_answer(parting: _Parting, came_back: Message | None) -> ForkReason:
    """The client sends an assistant message that nobody handed out."""
    if parting.was is not None and parting.was.role is Role.ASSISTANT:
        return ForkReason.ASSISTANT_EDITED
    return ForkReason.REWOUND if came_back is None else ForkReason.HISTORY_REWRITTEN


def _reason_of_missing_answer(request: Request, parting: _Parting, skipped: int | None) -> ForkReason:
    """Where an answer was held stands something else, a later answer, or the same with other reasoning."""
    if skipped == 0:
        is_answer = request.spoken_M[parting.at].role is Role.ASSISTANT
        return ForkReason.ASSISTANT_EDITED if is_answer else ForkReason.MESSAGE_EDITED
    if _next_answer(request, parting.at) is not None:
        return ForkReason.ASSISTANT_TURN_OMITTED if skipped == 1 else ForkReason.HISTORY_REWRITTEN
    if _quotes(request, parting.at):
        return ForkReason.HISTORY_REWRITTEN
    left_out = sum(1 for message in parting.path_M[parting.at :] if message.role is Role.ASSISTANT)
    return ForkReason.ASSISTANT_TURN_OMITTED if left_out == 1 else ForkReason.REWOUND


def _reason_of_other_message(request: Request, parting: _Parting) -> ForkReason:
    """A message of the client differs, and no held answer follows."""
    if _quotes(request, parting.at):
        return ForkReason.HISTORY_REWRITTEN
    if _left_out_answer(request, parting.at):
        return ForkReason.ASSISTANT_TURN_OMITTED
    is_result = request.spoken_M[parting.at].role is Role.TOOL
    is_run_again = is_result and parting.was is not None and parting.was.role is Role.TOOL
    return ForkReason.MESSAGE_EDITED if is_run_again else ForkReason.REWOUND


def _left_out_answer(request: Request, at: int) -> bool:
    """Whether an answer of another path is held right where the request leaves the nearest one."""
    if at >= len(request.walked.keys):
        return False
    prefix = request.forest.index.get(request.walked.keys[at])
    return prefix is not None and bool(prefix.samples)


def _skipped(parting: _Parting, came_back: Message | None) -> int | None:
    """How many answers of the path the client left out before the one that came back; None if it is not on it."""
    if came_back is None:
        return None
    content = weak(came_back)
    answers = [message for message in parting.path_M[parting.at :] if message.role is Role.ASSISTANT]
    return next((count for count, answer in enumerate(answers) if weak(answer) == content), None)


def _quotes(request: Request, start: int) -> bool:
    """Whether a new message holds the whole text of a late answer, as the summary of a compaction does."""
    leaves = [node for node in reversed(request.forest.nodes) if not node.children][:_QUOTABLE_LEAVES]
    texts = [text for node in leaves if len(text := node.message.text.strip()) >= _QUOTED_CHARS]
    said = [message.text for message in request.spoken_M[start:] if message.role is not Role.ASSISTANT]
    return any(text in message for text in texts for message in said)
