"""One sequence: the ids of a leaf's path, and where each of them came from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from turnstile.generation import Finish, NodeRef
from turnstile.history.forest import Node
from turnstile.journal import CallStarted, PolicyRange, SampledChoice
from turnstile.reasons import MaskReason
from turnstile.tokens import LogprobRun, SegmentKind
from turnstile.trajectory.fates import Fates
from turnstile.trajectory.shapes import SequenceSegment


class Piece(msgspec.Struct, frozen=True):
    """Ids of one origin, in the order of a path."""

    length: int
    kind: SegmentKind
    node: Node | None = None
    """The completion that drew them, under this very prefix."""
    replayed: NodeRef | None = None
    """The completion that drew them under another prefix."""


def path_pieces(leaf: Node) -> list[Piece]:
    """The pieces that a leaf's ids are made of; of a completion whose end a child cut off, the first ids alone."""
    pieces: list[Piece] = []
    length = 0
    for node in leaf.path():
        _cut(pieces, length - node.started.held_length)
        pieces += _added(node.started)
        pieces.append(Piece(len(node.choice.ids_S), SegmentKind.SAMPLED, node))
        length = node.length
    return _merged(piece for piece in pieces if piece.length)


def _added(started: CallStarted) -> Iterator[Piece]:
    replayed = iter(started.replayed)
    for added in started.added_segments:
        ref = next(replayed) if added.kind is SegmentKind.REPLAYED else None
        yield Piece(added.end - added.start, added.kind, replayed=ref)


def _cut(pieces: list[Piece], surplus: int) -> None:
    """Take `surplus` ids off the end."""
    while surplus > 0:
        last = pieces.pop()
        if last.length > surplus:
            pieces.append(msgspec.structs.replace(last, length=last.length - surplus))
        surplus -= last.length


def _merged(pieces: Iterator[Piece]) -> list[Piece]:
    """Pieces as the format names them, equal neighbours joined.

    `prompt` and `observation` say whether something was sampled before, which only the whole path knows. Text that
    was rendered from an earlier answer names no completion in the journal, so it is what it is here: context. Ids
    that were put back name theirs.
    """
    merged: list[Piece] = []
    context = SegmentKind.PROMPT
    for piece in pieces:
        if piece.node is not None:
            context = SegmentKind.OBSERVATION
        if piece.node is not None or piece.replayed is not None:
            merged.append(piece)
            continue
        kind = SegmentKind.SCAFFOLD if piece.kind is SegmentKind.SCAFFOLD else context
        if merged and merged[-1].kind is kind:
            merged[-1] = Piece(merged[-1].length + piece.length, kind)
        else:
            merged.append(Piece(piece.length, kind))
    return merged


def segments_of(pieces: list[Piece], index: int, fates: Fates) -> Iterator[SequenceSegment]:
    """The segments of the sequence at `index`, whose pieces these are."""
    at = 0
    for piece in pieces:
        if piece.node is None:
            call = None if piece.replayed is None else fates.line_of[piece.replayed]
            yield SequenceSegment(start=at, end=at + piece.length, kind=piece.kind.value, call=call)
        else:
            yield from _sampled(piece, piece.node, at, _mask(piece.node, index, fates), fates)
        at += piece.length


def _sampled(piece: Piece, node: Node, at: int, mask: MaskReason | None, fates: Fates) -> Iterator[SequenceSegment]:
    masked = _masked(node, fates) if mask is None else {}
    for tile in _policy_tiles(node.choice, piece.length):
        for start, end, reason in _runs(tile, masked, mask):
            yield SequenceSegment(
                start=at + start,
                end=at + end,
                kind=SegmentKind.SAMPLED.value,
                call=fates.line_of[node.ref],
                trainable=reason is None,
                mask_reason=None if reason is None else reason.value,
                weight=1.0 if reason is not None else 1.0 / len(fates.trainers[node.ref]),
                policy_version_min=tile.lowest,
                policy_version_max=tile.highest,
            )


def _policy_tiles(choice: SampledChoice, length: int) -> Iterator[PolicyRange]:
    """Which policy versions may have drawn which of a completion's first ids: a segment ends where they change."""
    whole = PolicyRange(0, length, choice.policy_min, choice.policy_max)
    for tile in choice.policy_ranges or (whole,):
        if tile.start_S < length:
            yield msgspec.structs.replace(tile, end_S=min(tile.end_S, length))


def _masked(node: Node, fates: Fates) -> dict[int, MaskReason]:
    """The tokens of a trainable completion that are not trainable themselves, by index."""
    choice = node.choice
    if fates.distrusts(node):
        return dict.fromkeys(range(len(choice.ids_S)), MaskReason.LOGPROB_SUSPECT)
    unknown = dict.fromkeys(recorded(choice).unknown, MaskReason.LOGPROB_MISSING)
    return unknown | dict.fromkeys(choice.placeholders_S, MaskReason.SAMPLED_PLACEHOLDER)


def _runs(
    tile: PolicyRange, masked: dict[int, MaskReason], mask: MaskReason | None
) -> Iterator[tuple[int, int, MaskReason | None]]:
    """A tile cut wherever tokens stand side by side of which one is masked for another reason, or not at all."""
    start = tile.start_S
    if not masked:
        yield start, tile.end_S, mask
        return
    for end in range(start + 1, tile.end_S + 1):
        if end == tile.end_S or masked.get(end) != masked.get(start):
            yield start, end, masked.get(start, mask)
            start = end


def _mask(node: Node, index: int, fates: Fates) -> MaskReason | None:
    """Why no token of a completion is trainable in a sequence; None if each one may be."""
    if index not in fates.trainers[node.ref]:
        return MaskReason.OWNED_BY_OTHER_SEQUENCE
    if fates.is_auxiliary(node):
        return MaskReason.AUXILIARY
    if fates.leaves[index].ref not in fates.whole:
        return MaskReason.INCOMPLETE_CALL
    match node.choice.finish:
        case Finish.STOP | Finish.LENGTH:
            return None
        case Finish.ABORT:
            return None if node.is_resumed else MaskReason.ABORTED
        case Finish.ERROR:
            return MaskReason.INCOMPLETE_CALL
        case _:
            assert_never(node.choice.finish)


def logprobs_of(pieces: list[Piece]) -> LogprobRun:
    """What was recorded for each sampled token of some pieces, in order."""
    packed: list[bytes] = []
    unknown: list[int] = []
    before_S = 0
    for piece in pieces:
        if piece.node is not None:
            run = recorded(piece.node.choice).slice(0, piece.length)
            packed.append(run.packed)
            unknown += [before_S + at for at in run.unknown]
            before_S += piece.length
    return LogprobRun(b"".join(packed), tuple(unknown))


def recorded(choice: SampledChoice) -> LogprobRun:
    """One entry for each id of a completion; all unknown if the engine gave none, or not as many as there are ids."""
    length = len(choice.ids_S)
    if choice.logprobs_S is None or len(choice.logprobs_S) != length:
        return LogprobRun(bytes(4 * length), tuple(range(length)))
    return choice.logprobs_S
