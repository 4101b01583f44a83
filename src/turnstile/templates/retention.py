"""What stays of the past where the template would write it in another way, as the rollout's policy says.

Source: docs/decisions/0009. Held ids never change: a prompt that is to be what the template writes keeps those with
which a whole render begins, and where that is not all of them it is a fork.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import assert_never

import msgspec

from turnstile.conversation import Call, Ending, Message, Role
from turnstile.generation import BridgeKind, Forked, HeldAnswer, Note, Retention, Spliced
from turnstile.reasons import ForkReason, NoteCode
from turnstile.templates.bodies import Body, bodies_in, framed
from turnstile.templates.certificate import Fate
from turnstile.templates.checks_text import past_thinking
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.sentinel import markers_for, texts_of
from turnstile.templates.served import Scene, Served, render
from turnstile.templates.whole import whole
from turnstile.tokens import IdRun, Segment, first_difference, tile

_SNIPPET_IDS = 16
_SNIPPET_CHARS = 60


class Rewritten(msgspec.Struct, frozen=True):
    """A whole render, seen from what is held. Shapes: added_A [A]; segments tile [0, A)."""

    kept_T: int
    """How many held ids it begins with."""
    added_A: IdRun
    segments: tuple[Segment, ...]
    history: Spliced | Forked
    notes: tuple[Note, ...]
    text: str
    """The whole conversation as text."""


def is_rewritten(
    served: Served, held: HeldAnswer, new_M: tuple[Message, ...], call: Call, retention: Retention
) -> bool:
    """Whether a prompt has to be what the template writes, from its first message on."""
    match retention:
        case Retention.RETAIN:
            return False
        case Retention.TEMPLATE:
            return True
        case Retention.TOOL_CYCLE:
            speaks = any(message.role is Role.USER for message in new_M)
            return speaks and _thought_since_user(held) and _drops_thinking(served, call)
        case _:
            assert_never(retention)


def _thought_since_user(held: HeldAnswer) -> bool:
    """Whether thinking is held behind the last user message: what stands before it was dropped there."""
    turn = itertools.takewhile(lambda message: message.role is not Role.USER, reversed(held.history_M))
    return any(message.reasoning for message in (held.message, *turn))


def _drops_thinking(served: Served, call: Call) -> bool:
    # Without a field for it a template cannot print thinking: its whole render has none.
    return served.proofs.drops_thinking(
        call, lambda: past_thinking(served, call.template_kwargs) in (Fate.DROPPED, Fate.ABSENT)
    )


def rewritten(served: Served, held: HeldAnswer, call: Call, now: datetime, whole_M: tuple[Message, ...]) -> Rewritten:
    """What the template writes of a whole conversation, set against what is held of it.

    Args:
        served: the model.
        held: the answer that the request builds on.
        call: the request.
        now: what the template sees as the present.
        whole_M: the conversation from its first message on.

    Raises: CallerError as `whole` does.
    """
    rendered = whole(served, whole_M, call, now)
    at = first_difference(held.held_T, rendered.ids_A)
    kept_T = len(held.held_T) if at is None else at
    added_A = rendered.ids_A.slice(kept_T)
    pieces = [(part.end - max(part.start, kept_T), part.kind) for part in rendered.segments if part.end > kept_T]
    if kept_T == len(held.held_T):
        return Rewritten(kept_T, added_A, tile(pieces), Spliced(BridgeKind.WHOLE_RENDER), (), rendered.text)
    places = served.tokenizer.encode_with_offsets(rendered.text).offsets
    offset = places[kept_T][0] if kept_T < len(places) else len(rendered.text)
    fork = Forked(
        ForkReason.RETENTION,
        message_index=_answer_at(offset, _places(served, call, now, whole_M, rendered.text), whole_M),
        was=_snippet(served, held.held_T.slice(kept_T)),
        now=_snippet(served, added_A),
    )
    note = Note(NoteCode.RERENDERED_HISTORY, f"from id {kept_T} of {len(held.held_T)} held ones on")
    return Rewritten(kept_T, added_A, tile(pieces), fork, (note,), rendered.text)


def _snippet(served: Served, ids: IdRun) -> str:
    return served.tokenizer.decode(ids.slice(0, _SNIPPET_IDS))[:_SNIPPET_CHARS]


def _places(
    served: Served, call: Call, now: datetime, whole_M: tuple[Message, ...], text: str
) -> tuple[tuple[int, Body], ...]:
    """Where the messages' texts stand in the whole render, with the messages' indices."""
    scene = Scene.of(call, whole_M, now)
    markers = markers_for((*texts_of(whole_M), *scene.tools, scene.kwargs))
    frame = framed(whole_M, Ending.ANSWER, markers, served.facts.form)
    try:
        framed_text = render(served, scene, frame.messages, GenerationPrompt.ADD)
    except TemplateFailed:
        return ()
    found = bodies_in(text, framed_text, frame.texts)
    return tuple((frame.contents[body.marker], body) for body in found if body.marker in frame.contents)


def _answer_at(offset: int, places: tuple[tuple[int, Body], ...], whole_M: tuple[Message, ...]) -> int | None:
    """The last answer that begins before the first text that ends behind a character; that text's own if it is one."""
    behind = next((at for at, body in places if body.end > offset), len(whole_M) - 1)
    return next((at for at in range(behind, -1, -1) if whole_M[at].role is Role.ASSISTANT), None)
