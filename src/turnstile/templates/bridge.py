"""The ids between an answer that is held and the next one, without touching what is held.

Source: docs/decisions/0004. First from a small synthetic conversation, then, where what a template prints depends
on the turns before, from the client's whole history, of which only the tail is encoded.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from turnstile.conversation import Call, Message, Text
from turnstile.generation import BridgeKind, Cut, HeldAnswer, Note
from turnstile.reasons import NoteCode
from turnstile.templates.bodies import Body, Framed, bodies_in, framed, kinds, survives, unmistakable
from turnstile.templates.closing import join_to
from turnstile.templates.images import with_placeholders
from turnstile.templates.sentinel import (
    Boundary,
    Markers,
    Outlook,
    closing,
    closing_behind,
    cut,
    encode_new,
    markers_for,
    small_past,
    tail,
    texts_of,
)
from turnstile.templates.served import Mode, Refusal, Scene, Served
from turnstile.tokens import IdRun, Segment, SegmentKind, tile


class Bridge(msgspec.Struct, frozen=True):
    """Ids to put behind the first `kept_T` ids of a held path. Shapes: added_A [A]; segments tile [0, A)."""

    kind: BridgeKind
    kept_T: int
    """All of the held path's ids, or all but its last where a stop token may not stand in history."""
    added_A: IdRun
    segments: tuple[Segment, ...]
    text: str
    """What is new as text, the close left out."""
    notes: tuple[Note, ...]


class Crossing(msgspec.Struct, frozen=True):
    """One answer that is held and what is to follow it: all that a bridge is made of."""

    served: Served
    scene: Scene
    held: HeldAnswer
    ahead: Outlook

    @classmethod
    def of(cls, served: Served, held: HeldAnswer, new_M: tuple[Message, ...], call: Call, now: datetime) -> Crossing:
        """Collect it."""
        scene = Scene.of(call, held.history_M, now)
        return cls(served, scene, held, Outlook(held.message, new_M, call.ending, _markers(scene, held, new_M, ())))

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Where a marker may stand in for the answer's body, best first."""
        has_calls = self.held.message.calls and not self.served.facts.drops_calls
        return (Mode.ARGS, Mode.CONTENT) if has_calls else (Mode.CONTENT,)


def bridge(served: Served, held: HeldAnswer, new_M: tuple[Message, ...], call: Call, now: datetime) -> Bridge | Refusal:
    """The ids from a held answer to the next one.

    Args:
        served: the model.
        held: the answer that the request builds on; its ids are neither decoded nor encoded.
        new_M: the messages behind it; with `Ending.CONTINUE` the last is the one to be continued.
        call: for its tools, template arguments and ending.
        now: what the template sees as the present.

    Raises: CallerError if tools or template arguments are no JSON objects, or a text has no bytes.
    """
    return crossed(Crossing.of(served, held, new_M, call, now))


def crossed(crossing: Crossing) -> Bridge | Refusal:
    """The bridge of a crossing, off the whole history where the template's facts ask for it or nothing else will do."""
    served = crossing.served
    if not served.facts.needs_history.isdisjoint(crossing.modes):
        return history_bridge(crossing)
    small = sentinel_bridge(crossing)
    if isinstance(small, Bridge):
        return small
    whole = history_bridge(crossing)
    return whole if isinstance(whole, Bridge) else joined((small, whole))


def sentinel_bridge(crossing: Crossing) -> Bridge | Refusal:
    """The bridge as a small synthetic conversation shows it; the real history is not rendered."""
    return _first_mode(crossing, BridgeKind.SENTINEL, small_past(crossing.scene))


def history_bridge(crossing: Crossing) -> Bridge | Refusal:
    """The bridge as the client's own history shows it; that is rendered, but not encoded."""
    held, new_M = crossing.held, crossing.ahead.new_M
    ahead = msgspec.structs.replace(crossing.ahead, markers=_markers(crossing.scene, held, new_M, held.history_M))
    return _first_mode(msgspec.structs.replace(crossing, ahead=ahead), BridgeKind.REAL_HISTORY, crossing.held.history_M)


def _markers(scene: Scene, held: HeldAnswer, new_M: tuple[Message, ...], past_M: tuple[Message, ...]) -> Markers:
    rendered = (*scene.system_M, *past_M, held.message, *new_M)
    return markers_for(itertools.chain(texts_of(rendered), scene.tools, (scene.kwargs,)))


def _first_mode(crossing: Crossing, kind: BridgeKind, past_M: tuple[Message, ...]) -> Bridge | Refusal:
    refused: list[Refusal] = []
    for mode in crossing.modes:
        boundary = _boundary(crossing, past_M, mode)
        built = boundary if isinstance(boundary, Refusal) else _built(crossing, kind, past_M, boundary, mode)
        if isinstance(built, Bridge):
            return built
        refused.append(built)
    return joined(refused)


def _boundary(crossing: Crossing, past_M: tuple[Message, ...], mode: Mode) -> Boundary | Refusal:
    served, scene = crossing.served, crossing.scene
    closed = closing(served, scene, crossing.held.message, mode)
    if isinstance(closed, Refusal):
        # The small conversation may be refused where the real one is not.
        closed = closing_behind(served, scene, past_M, crossing.held.message, mode)
    if isinstance(closed, Refusal):
        return closed
    behind = tail(served, scene, past_M, crossing.ahead, mode)
    return behind if isinstance(behind, Refusal) else cut(served, closed, behind)


def _built(
    crossing: Crossing, kind: BridgeKind, past_M: tuple[Message, ...], boundary: Boundary, mode: Mode
) -> Bridge | Refusal:
    new = encode_new(crossing.served, boundary)
    if isinstance(new, Refusal):
        return new
    frame = framed(crossing.ahead.new_M, crossing.ahead.ending, crossing.ahead.markers, crossing.served.facts.form)
    bodies = _bodies(crossing, past_M, boundary, mode, frame)
    join = join_to(crossing.served, crossing.scene, crossing.held, boundary, mode)
    pieces = kinds(new.offsets_A[join.skipped_A :], with_placeholders(crossing.served, new, bodies))
    return Bridge(
        kind=kind,
        kept_T=join.kept_T,
        added_A=join.close_C + new.ids_A.slice(join.skipped_A),
        segments=tile([(len(join.close_C), SegmentKind.SCAFFOLD), *pieces]),
        text=boundary.tail[boundary.end :],
        notes=tuple(_notes(crossing, boundary, bodies, frame)),
    )


def _bodies(
    crossing: Crossing, past_M: tuple[Message, ...], boundary: Boundary, mode: Mode, frame: Framed
) -> tuple[Body, ...]:
    if bodies := unmistakable(boundary.tail, frame.texts):
        return bodies
    if not frame.texts:
        return ()
    ahead = msgspec.structs.replace(crossing.ahead, new_M=frame.messages)
    behind = tail(crossing.served, crossing.scene, past_M, ahead, mode)
    return () if isinstance(behind, Refusal) else bodies_in(boundary.tail, behind, frame.texts)


def _notes(crossing: Crossing, boundary: Boundary, bodies: tuple[Body, ...], frame: Framed) -> Iterator[Note]:
    if crossing.held.cut is not Cut.NONE:
        yield Note(NoteCode.SYNTHETIC_CLOSE, f"the answer was cut inside its {crossing.held.cut}")
    placed = {body.marker for body in bodies}
    for marker, at in frame.contents.items():
        if marker not in placed and not survives(frame.texts[marker], boundary.tail[boundary.end :]):
            yield Note(NoteCode.CONTENT_LOST, f"new message {at} ({frame.messages[at].role})")
    yield from control_text_notes(crossing.served, crossing.ahead.new_M)


def control_text_notes(served: Served, new_M: tuple[Message, ...]) -> Iterator[Note]:
    """A note for each new message whose text contains a control token's.

    It becomes that token, as on the engine's own chat route.
    """
    if served.control_text is None:
        return
    for at, message in enumerate(new_M):
        found = next((hit for text in _texts(message) if (hit := served.control_text.search(text))), None)
        if found is not None:
            detail = f"new message {at} ({message.role}) contains {found.group()!r}"
            yield Note(NoteCode.CONTROL_TEXT_IN_CONTENT, detail)


def _texts(message: Message) -> Iterator[str]:
    return (part.text for part in message.parts if isinstance(part, Text))


def joined(refused: Iterable[Refusal]) -> Refusal:
    """One refusal for several: the first one's reason, and all details."""
    first, *others = refused
    details = dict.fromkeys(refusal.detail for refusal in (first, *others))
    return Refusal(first.reason, "; ".join(details))
