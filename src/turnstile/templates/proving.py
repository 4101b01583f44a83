"""The bridge of a request whose pattern is proven, and the proof of one whose pattern is met for the first time.

Source: docs/decisions/0009. What a certificate has not seen is never assumed: its first use is compared with the
bridge off the client's own history, and the outcome remembered with the served model.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import assert_never

import msgspec

from turnstile.conversation import Call, JsonText, Message
from turnstile.generation import BridgeKind, HeldAnswer, NodeRef, Note
from turnstile.reasons import NoteCode, RerenderReason
from turnstile.templates.bridge import Bridge, Crossing, crossed, history_bridge, joined, sentinel_bridge
from turnstile.templates.certificate import Certificate, CertificateClass, ShapeVerdict
from turnstile.templates.checks_shapes import shape_for
from turnstile.templates.proofs import Pattern, Proof, Verdict, pattern_of
from turnstile.templates.second_opinion import Crossed
from turnstile.templates.served import Refusal, Served
from turnstile.templates.shapes import ALL_SHAPES, PASTS, Shape
from turnstile.tokens import NO_IDS

log = logging.getLogger("turnstile.templates")

_SHAPES = {shape.name: shape for shape in ALL_SHAPES}


def proven_bridge(
    served: Served, held: HeldAnswer, new_M: tuple[Message, ...], call: Call, now: datetime
) -> Bridge | Refusal:
    """The ids from a held answer to the next one, as the pattern of the request allows; see `bridge`.

    Raises: CallerError if tools or template arguments are no JSON objects, or a text has no bytes.
    """
    if served.proofs.refusal:
        return Refusal(RerenderReason.NOT_CERTIFIED, served.proofs.refusal)
    crossing = Crossing.of(served, held, new_M, call, now)
    if not served.facts.needs_history.isdisjoint(crossing.modes):
        return history_bridge(crossing)
    pattern = pattern_of(held, new_M, call)
    proof = served.proofs.known(pattern)
    return _compared(crossing, pattern) if proof is None else _built(crossing, proof)


def seconded(served: Served, held: HeldAnswer, new_M: tuple[Message, ...], call: Call, ours: Bridge) -> Bridge:
    """Our bridge, said to be a plug-in's where that was asked and gave the same ids (docs/decisions/0017)."""
    opinion = served.second_opinion
    if opinion is None or not held.sampled_count:
        return ours
    pattern = pattern_of(held, new_M, call)
    if not opinion.is_asked(pattern):
        return ours
    fed_T = len(held.held_T) - held.sampled_count
    tools = tuple(tool.declaration for tool in call.tools)
    asked = Crossed(held.held_T.slice(0, fed_T), held.held_T.slice(fed_T), new_M, tools)
    is_same = opinion.confirms(pattern, asked, held.held_T.slice(0, ours.kept_T) + ours.added_A)
    return msgspec.structs.replace(ours, kind=BridgeKind.PLUGIN) if is_same else ours


def _built(crossing: Crossing, proof: Proof) -> Bridge | Refusal:
    match proof.verdict:
        case Verdict.NEEDS_HISTORY:
            return history_bridge(crossing)
        case Verdict.UNPROVEN:
            built = crossed(crossing)
            return built if isinstance(built, Refusal) else _looser(built, proof)
        case Verdict.EXACT | Verdict.DIFFERENT | Verdict.REFUSED:
            return crossed(crossing)
        case _:
            assert_never(proof.verdict)


def _compared(crossing: Crossing, pattern: Pattern) -> Bridge | Refusal:
    small = sentinel_bridge(crossing)
    whole = history_bridge(crossing)
    proof = _proof(small, whole)
    if proof is None:
        return joined(refusal for refusal in (small, whole) if isinstance(refusal, Refusal))
    if crossing.served.proofs.learn(pattern, proof):
        _log(pattern, proof)
    if proof.verdict is Verdict.NEEDS_HISTORY:
        return whole
    assert isinstance(small, Bridge)
    return _looser(small, proof) if proof.verdict is Verdict.UNPROVEN else small


def _log(pattern: Pattern, proof: Proof) -> None:
    level = logging.INFO if proof.verdict is Verdict.EXACT else logging.WARNING
    why = f": {proof.detail}" if proof.detail else ""
    log.log(level, "first request of its pattern, %s: %s%s", proof.verdict, pattern, why)


def _proof(small: Bridge | Refusal, whole: Bridge | Refusal) -> Proof | None:
    """What the two bridges show of each other; None if there is neither, which says nothing of other requests."""
    match small, whole:
        case Bridge(), Bridge():
            is_same = (small.kept_T, small.added_A) == (whole.kept_T, whole.added_A)
            return Proof(Verdict.EXACT) if is_same else Proof(Verdict.NEEDS_HISTORY)
        case Refusal(), Bridge():
            return Proof(Verdict.NEEDS_HISTORY, small.detail)
        case Bridge(), Refusal():
            return Proof(Verdict.UNPROVEN, whole.detail)
        case _:
            return None


def _looser(small: Bridge, proof: Proof) -> Bridge:
    if small.kind is BridgeKind.REAL_HISTORY:
        return small
    return msgspec.structs.replace(small, notes=(*small.notes, Note(NoteCode.LOOSER_THAN_TEMPLATE, proof.detail)))


def take_over(served: Served, certificate: Certificate) -> None:
    """Let planning know what a certificate of this model says.

    A pattern is taken over where all shapes that have it have one verdict; all others are proven in use.
    """
    if certificate.certificate_class is CertificateClass.REFUSED:
        for model in filter(None, (served, served.with_tools)):
            model.proofs.refusal = certificate.problem
        return
    found: dict[tuple[bool, Pattern], set[Proof]] = {}
    for shape, proof in _certified(certificate):
        model = served.for_tools(tuple(tool.declaration for tool in shape.tools))
        pattern = pattern_of_shape(shape_for(model, shape), certificate.kwargs)
        found.setdefault((model is served, pattern), set()).add(proof)
    for (is_plain, pattern), proofs in found.items():
        model = served if is_plain else served.with_tools
        verdicts = {proof.verdict for proof in proofs}
        if model is not None and len(verdicts) == 1 and verdicts <= _BUILDABLE:
            model.proofs.certify(pattern, min(proofs, key=lambda proof: proof.detail))


_BUILDABLE = frozenset({Verdict.EXACT, Verdict.NEEDS_HISTORY, Verdict.UNPROVEN})


def _certified(certificate: Certificate) -> Iterator[tuple[Shape, Proof]]:
    for each in certificate.shapes:
        if each.shape in _SHAPES:
            yield _SHAPES[each.shape], _proof_of(each)
    for repeat in certificate.repeats:
        if repeat.shape in _SHAPES and repeat.past in PASTS:
            shape = msgspec.structs.replace(_SHAPES[repeat.shape], history_M=PASTS[repeat.past])
            yield shape, Proof(Verdict.DIFFERENT if repeat.verdict is Verdict.UNPROVEN else repeat.verdict)


def _proof_of(shape: ShapeVerdict) -> Proof:
    """What a shape's verdict says of its pattern; one that the template prints, but not provably, says nothing."""
    is_unclear = shape.verdict is Verdict.UNPROVEN and shape.renders
    return Proof(Verdict.DIFFERENT if is_unclear else shape.verdict, shape.detail)


def pattern_of_shape(shape: Shape, kwargs: JsonText) -> Pattern:
    """The pattern of the request that a shape is."""
    held = HeldAnswer(NodeRef("certificate"), NO_IDS, shape.answer, shape.cut, shape.history_M)
    return pattern_of(held, shape.new_M, shape.call(kwargs))
