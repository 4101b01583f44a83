"""Checks 6, 7, 8 and 10 of a certificate: each shape's splice against one whole render.

The whole render is encoded whole and cut behind the first ending that follows the answer's rare word; the splice
never sees that history. Both share nothing but render and encode.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from turnstile.conversation import Ending, JsonText, Message
from turnstile.generation import Cut, HeldAnswer, NodeRef
from turnstile.reasons import NoteCode
from turnstile.templates.bridge import Bridge, Crossing, history_bridge, sentinel_bridge
from turnstile.templates.certificate import Repeat, ShapeVerdict, Verdict
from turnstile.templates.images import first_unprinted
from turnstile.templates.render import GenerationPrompt, TemplateFailed
from turnstile.templates.sentinel import closing, cut, left_open, small_past, tail
from turnstile.templates.served import Mode, Refusal, Scene, Served, StopClass, render
from turnstile.templates.shapes import ALL_SHAPES, PASTS, RARE, REPEATED, SHAPES, Shape, without_calls
from turnstile.tokens import IdRun

NOW = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
_OPEN_END = "qxvkluft"
"""Where a message to be continued ends, in the whole render."""


class WholeRender(msgspec.Struct, frozen=True):
    """A whole conversation and what of it a splice has to give. Shapes: expected_A [A], held_T [H]."""

    text: str
    held_T: IdRun
    """The last ids of what is held; a splice looks only at the very last one."""
    kept_T: int
    """How many of them may stand in history."""
    expected_A: IdRun


class NoReference(msgspec.Struct, frozen=True):
    """Why a splice cannot be held against a whole render."""

    says: str
    renders: bool
    """The template takes the conversation, but the answer is not to be found in it."""


def shape_for(served: Served, shape: Shape) -> Shape:
    """The shape as an agent can send it to this template."""
    return without_calls(shape) if served.facts.drops_calls else shape


def check_shape(served: Served, shape: Shape, kwargs: JsonText) -> ShapeVerdict:
    """One shape's splice against the whole render."""
    served = served.for_tools(tuple(tool.declaration for tool in shape.tools))
    shape = shape_for(served, shape)
    if first_unprinted(served, shape.call(kwargs).messages) is not None:
        return _unprinted(shape)
    whole = whole_render(served, shape, kwargs)
    crossing = _crossing(served, shape, whole, kwargs)
    small = sentinel_bridge(crossing)
    verdict, detail = _verdict(crossing, small, whole)
    lost = isinstance(small, Bridge) and any(note.code is NoteCode.CONTENT_LOST for note in small.notes)
    return ShapeVerdict(
        shape=shape.name,
        verdict=verdict,
        mode=_mode(crossing) if isinstance(small, Bridge) else "",
        stability=_stability(served, shape, whole, kwargs),
        renders=isinstance(whole, WholeRender) or whole.renders,
        lost=lost,
        detail=detail,
    )


def _unprinted(shape: Shape) -> ShapeVerdict:
    return ShapeVerdict(
        shape=shape.name,
        verdict=Verdict.REFUSED,
        mode="",
        stability="unknown",
        renders=False,
        lost=False,
        detail="The template does not print an image in such a message",
    )


def shapes_of(served: Served) -> tuple[Shape, ...]:
    """The shapes that are checked for a template."""
    return SHAPES if served.facts.images is None else ALL_SHAPES


def check_repeats(served: Served, kwargs: JsonText) -> tuple[Repeat, ...]:
    """The commonest shapes behind other pasts than their own."""
    return tuple(
        Repeat(
            shape.name, past, check_shape(served, msgspec.structs.replace(shape, history_M=history_M), kwargs).verdict
        )
        for past, history_M in PASTS.items()
        for shape in REPEATED
    )


def probe_texts(served: Served, kwargs: JsonText) -> Iterable[str]:
    """All whole renders of the shapes that the template takes."""
    for shape in shapes_of(served):
        model = served.for_tools(tuple(tool.declaration for tool in shape.tools))
        whole = whole_render(model, shape_for(model, shape), kwargs)
        if isinstance(whole, WholeRender):
            yield whole.text


def whole_render(served: Served, shape: Shape, kwargs: JsonText) -> WholeRender | NoReference:
    """The whole conversation, if the template takes it and prints the answer once, with an end."""
    new_M, generation = shape.new_M, GenerationPrompt.ADD
    if shape.ending is Ending.CONTINUE:
        new_M, generation = (*new_M[:-1], left_open(new_M[-1], _OPEN_END)), GenerationPrompt.OMIT
    try:
        text = _rendered(served, shape, kwargs, (*shape.history_M, shape.answer, *new_M), generation)
    except TemplateFailed as failure:
        return NoReference(failure.problem, renders=False)
    text = text.partition(_OPEN_END)[0] if shape.ending is Ending.CONTINUE else text
    if RARE not in text:
        return NoReference("The template leaves out the last words of the answer", renders=True)
    if text.count(RARE) > 1:
        return NoReference(f"The template prints the answer {text.count(RARE)} times", renders=True)
    body_end = text.index(RARE) + len(RARE)
    end = ending_behind(served, text, body_end) if shape.cut is Cut.NONE else body_end
    if end is None:
        return NoReference("No stop token ends the answer in history", renders=True)
    return _split(served, text, end, shape.cut)


def ending_behind(served: Served, text: str, body_end: int) -> int | None:
    """Where the first token ends that can end an answer, from a character on; None if there is none."""
    found = (at + len(ending) for ending in endings(served) if (at := text.find(ending, body_end)) >= 0)
    return min(found, default=None)


def endings(served: Served) -> tuple[str, ...]:
    """Texts with which an answer can end in history."""
    stops = tuple(served.tokenizer.token_bytes(token_id).decode("utf-8", "replace") for token_id in served.stop_ids)
    is_alias = served.facts.stop_class is StopClass.ALIAS
    return (*stops, served.facts.content_close.strip()) if is_alias else stops


def as_sampled(served: Served, held_T: IdRun) -> tuple[IdRun, int]:
    """What the engine sampled where a history has these ids, and how many of them may stay.

    Where history has another ending than the engine samples (gpt-oss), the sampled one may not stay.
    """
    if held_T[-1] in served.stop_ids:
        return held_T, len(held_T)
    return held_T.slice(0, len(held_T) - 1) + IdRun.of([min(served.stop_ids)]), len(held_T) - 1


def _split(served: Served, text: str, end: int, cut_: Cut) -> WholeRender:
    encoded = served.tokenizer.encode_with_offsets(text)
    count = sum(1 for start, _ in encoded.offsets if start < end)
    history_T = encoded.ids.slice(max(0, count - 2), count)
    expected_A = encoded.ids.slice(count)
    if cut_ is not Cut.NONE:
        return WholeRender(text, history_T, len(history_T), expected_A)
    held_T, kept_T = as_sampled(served, history_T)
    return WholeRender(text, held_T, kept_T, history_T.slice(kept_T) + expected_A)


def _crossing(served: Served, shape: Shape, whole: WholeRender | NoReference, kwargs: JsonText) -> Crossing:
    held_T = whole.held_T if isinstance(whole, WholeRender) else IdRun.of([0, min(served.stop_ids)])
    held = HeldAnswer(NodeRef("certificate"), held_T, shape.answer, shape.cut, shape.history_M)
    return Crossing.of(served, held, shape.new_M, shape.call(kwargs), NOW)


def _verdict(crossing: Crossing, small: Bridge | Refusal, whole: WholeRender | NoReference) -> tuple[Verdict, str]:
    if isinstance(whole, NoReference):
        return (Verdict.UNPROVEN if isinstance(small, Bridge) else Verdict.REFUSED), whole.says
    if _agrees(small, whole):
        return Verdict.EXACT, ""
    if _agrees(history_bridge(crossing), whole):
        return Verdict.NEEDS_HISTORY, "What stands behind an answer depends on the turns before"
    if isinstance(small, Refusal):
        return Verdict.REFUSED, small.detail
    if small.kept_T != whole.kept_T:
        return Verdict.REFUSED, "The stop token that was sampled is not the one that this history has behind the answer"
    return Verdict.DIFFERENT, "The template writes the sampled answer, or what follows it, in another place or way"


def _agrees(built: Bridge | Refusal, whole: WholeRender) -> bool:
    return isinstance(built, Bridge) and built.kept_T == whole.kept_T and built.added_A == whole.expected_A


def _mode(crossing: Crossing) -> str:
    """The mode in which a small conversation gives a boundary."""
    served, scene = crossing.served, crossing.scene
    for mode in crossing.modes[:-1]:
        closed = closing(served, scene, crossing.held.message, mode)
        behind = tail(served, scene, small_past(scene), crossing.ahead, mode)
        if not isinstance(closed, Refusal) and isinstance(behind, str):
            boundary = cut(served, closed, behind)
            if not isinstance(boundary, Refusal):
                return mode.value
    return crossing.modes[-1].value if crossing.modes else Mode.CONTENT.value


def _stability(served: Served, shape: Shape, whole: WholeRender | NoReference, kwargs: JsonText) -> str:
    is_thinking = bool(shape.answer.reasoning)
    if shape.ending is Ending.CONTINUE or shape.cut is not Cut.NONE:
        return "n/a"
    if is_thinking and not served.facts.form.reasoning_field:
        return "n/a"
    if isinstance(whole, NoReference):
        return "unknown"
    try:
        prompt = _rendered(served, shape, kwargs, shape.history_M, GenerationPrompt.ADD)
        alone = _rendered(served, shape, kwargs, (*shape.history_M, shape.answer), GenerationPrompt.OMIT)
    except TemplateFailed:
        return "unknown"
    if RARE not in alone:
        return "unknown"
    answered = alone[: alone.index(RARE) + len(RARE)]
    broken = {
        "g": not alone.startswith(prompt),
        "G": not whole.text.startswith(prompt),
        "H": not whole.text.startswith(answered),
    }
    return "".join(letter for letter, is_broken in broken.items() if is_broken) or "stable"


def _rendered(
    served: Served, shape: Shape, kwargs: JsonText, messages: tuple[Message, ...], generation: GenerationPrompt
) -> str:
    scene = Scene((), tuple(tool.declaration for tool in shape.tools), kwargs, NOW)
    return render(served, scene, messages, generation)
