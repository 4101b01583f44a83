"""Prompts with images, in their two spellings: one placeholder id an image, and what the model really ran.

A template prints one placeholder for an image; the engine puts a run of ids in its place, as long as the image is
large. Splicing, matching and prefix tests work on collapsed ids (`IdRun`), trainers on expanded ones (`ExpandedIds`).
The two are different types, so that one is never taken for the other.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.tokens import IdRun, join


class ImageRange(msgspec.Struct, frozen=True, array_like=True):
    """Where one image stands in expanded ids."""

    start: int
    length: int
    """Ids of its run, separators of rows and tiles included."""
    num_tokens: int
    """Embeddings that the run consumes: its placeholders."""

    @property
    def end(self) -> int:
        """The index behind its last id."""
        return self.start + self.length


class ExpandedIds(msgspec.Struct, frozen=True):
    """A prompt as the engine ran it. Shapes: ids_T int32[T], with one range for each image, in order."""

    ids_T: IdRun
    ranges: tuple[ImageRange, ...]

    def __post_init__(self) -> None:
        """Raises: ValueError unless the ranges are sorted, disjoint, not empty and inside the ids."""
        end = 0
        for number, each in enumerate(self.ranges):
            if each.start < end or each.length < 1 or each.end > len(self.ids_T):
                raise ValueError(f"range {number} ([{each.start}, {each.end}) of {len(self.ids_T)} ids) is misplaced")
            end = each.end

    def __len__(self) -> int:
        return len(self.ids_T)

    def run(self, number: int) -> IdRun:
        """The ids that stand for one image."""
        each = self.ranges[number]
        return self.ids_T.slice(each.start, each.end)

    def collapsed(self, placeholder_id: int) -> IdRun:
        """The same prompt with one placeholder for each image."""
        one, at = IdRun.of((placeholder_id,)), 0
        pieces: list[IdRun] = []
        for each in self.ranges:
            pieces += (self.ids_T.slice(at, each.start), one)
            at = each.end
        return join((*pieces, self.ids_T.slice(at)))


def expand(collapsed_T: IdRun, placeholder_id: int, runs: Sequence[IdRun]) -> ExpandedIds:
    """The exact inverse of `ExpandedIds.collapsed`.

    Args:
        collapsed_T: ids with one placeholder for each image.
        placeholder_id: that placeholder.
        runs: what stands for each image, in order.

    Raises: ValueError if there are not as many placeholders as runs.
    """
    places = collapsed_T.places(placeholder_id) if runs else []
    if len(places) != len(runs):
        raise ValueError(f"{len(places)} placeholders for {len(runs)} images")
    pieces: list[IdRun] = []
    ranges: list[ImageRange] = []
    at = length = 0
    for place, run in zip(places, runs, strict=True):
        before = collapsed_T.slice(at, place)
        pieces += (before, run)
        ranges.append(ImageRange(length + len(before), len(run), run.tolist().count(placeholder_id)))
        length += len(before) + len(run)
        at = place + 1
    return ExpandedIds(join((*pieces, collapsed_T.slice(at))), tuple(ranges))


def expanded_by_runs(echo_T: IdRun, placeholder_id: int) -> ExpandedIds:
    """Expanded ids whose engine does not say where the images are: each unbroken run of placeholders is one.

    Two images with nothing between them would be one run; a collapsed comparison with what was sent finds that.
    """
    ranges: list[ImageRange] = []
    start = -1
    for at, token_id in enumerate((*echo_T.tolist(), -1)):
        if token_id == placeholder_id:
            start = at if start < 0 else start
        elif start >= 0:
            ranges.append(ImageRange(start, at - start, at - start))
            start = -1
    return ExpandedIds(echo_T, tuple(ranges))
