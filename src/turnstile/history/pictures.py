"""The images of a path: where each stands in the held ids, and what an engine ran in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.history.forest import Forest
from turnstile.history.node import Node
from turnstile.journal import ImageRun, ShownImage
from turnstile.tokens import IdRun, join


class ImagePlace(msgspec.Struct, frozen=True, order=True):
    """An image of a rollout: the call that added it, and which of that call's images it is."""

    call_id: str
    number: int


class Picture(msgspec.Struct, frozen=True):
    """An image on a path."""

    place: ImagePlace
    at: int
    """Index of its placeholder in the held ids, which have one for each image."""
    shown: ShownImage
    run: ImageRun | None
    """None: no engine on this path has said what it ran for it."""


@dataclass(slots=True)
class _Growing:
    place: ImagePlace
    at: int
    shown: ShownImage
    run: ImageRun | None = None


def pictures(leaf: Node, kept: int | None = None) -> tuple[Picture, ...]:
    """The images among the first `kept` ids of a completion's path, in order; of the whole path if None.

    A run that is told late, by a later completion of the path, counts for the whole path.
    """
    found: list[_Growing] = []
    for node in leaf.path():
        started = node.started
        _cut(found, started.held_length)
        found += (
            _Growing(ImagePlace(started.call_id, number), started.held_length + shown.at_A, shown)
            for number, shown in enumerate(started.images)
        )
        for growing, run in zip(reversed(found), reversed(node.choice.image_runs), strict=False):
            growing.run = growing.run or run
    if kept is not None:
        _cut(found, kept)
    return tuple(Picture(each.place, each.at, each.shown, each.run) for each in found)


def _cut(found: list[_Growing], kept: int) -> None:
    while found and found[-1].at >= kept:
        found.pop()


def known_runs(forest: Forest) -> Mapping[ImagePlace, ImageRun]:
    """What was run for each image of a rollout, as far as any of its completions says."""
    known: dict[ImagePlace, ImageRun] = {}
    if any(state.started.images for state in forest.calls.values()):
        for node in forest.nodes:
            if not any(child.started.held_length == node.length for child in node.children):
                known |= {each.place: each.run for each in pictures(node) if each.run is not None}
    return known


def run_lengths(forest: Forest) -> Mapping[str, int]:
    """By sha256: how many ids an image was run as, where it was shown before; the latest counts."""
    lengths: dict[str, int] = {}
    for node in forest.nodes:
        images, told = node.started.images, node.choice.image_runs
        if images and len(told) >= len(images):
            runs = told[len(told) - len(images) :]
            lengths |= {shown.sha256: run.length for shown, run in zip(images, runs, strict=True)}
    return lengths


def spelled_out(collapsed_T: IdRun, placeholder_id: int, places: Sequence[tuple[int, ImageRun | None]]) -> ExpandedIds:
    """Ids with each image's run in the place of its placeholder; an image whose run is not known keeps the one.

    Args:
        collapsed_T: ids with one placeholder for each image.
        placeholder_id: that placeholder.
        places: for each image, in order, the index of its placeholder and its run.
    """
    pieces: list[IdRun] = []
    ranges: list[ImageRange] = []
    at = length = 0
    for place, run in places:
        ids = run_ids(run, placeholder_id)
        pieces += (collapsed_T.slice(at, place), ids)
        start = length + place - at
        # Nobody knows how many embeddings a run has that nobody has told.
        ranges.append(ImageRange(start, len(ids), 0 if run is None else run.num_tokens))
        length, at = start + len(ids), place + 1
    return ExpandedIds(join((*pieces, collapsed_T.slice(at))), tuple(ranges))


def run_ids(run: ImageRun | None, placeholder_id: int) -> IdRun:
    """The ids of an image's run; the bare placeholder if it is not known."""
    if run is None:
        return IdRun.of((placeholder_id,))
    return run.ids or IdRun(IdRun.of((placeholder_id,)).packed * run.length)
