"""Prompts and paths as engines ran them: the run of ids of each image in the place of its placeholder."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Listing
from functools import cached_property

import msgspec

from turnstile.errors import CallerError
from turnstile.expansion import ExpandedIds, ImageRange
from turnstile.history.forest import Forest, Node
from turnstile.history.pictures import ImagePlace, Picture, known_runs, pictures, spelled_out
from turnstile.journal import CallStarted, ImageRun, ShownImage
from turnstile.tokens import IdRun, join
from turnstile.trajectory.shapes import MediaEntry, Sequence


class Spelled(msgspec.Struct, frozen=True):
    """Ids with the images' runs in them; an image of which nobody said what was run keeps its one placeholder."""

    run: ExpandedIds
    images: tuple[ShownImage, ...] = ()
    """One for each range of `run`."""
    places: tuple[int, ...] = ()
    """The index of each image's placeholder before its run was put in."""
    placeholder_id: int = 0

    @property
    def ids_T(self) -> IdRun:
        """The ids, int32[T]."""
        return self.run.ids_T

    def index(self, collapsed: int) -> int:
        """Where the id stands that stood at an index before the runs were put in; also for the end of all ids."""
        before = bisect_left(self.places, collapsed)
        if not before:
            return collapsed
        return self.run.ranges[before - 1].end + collapsed - self.places[before - 1] - 1

    def media(self) -> Iterator[MediaEntry]:
        """What stands in a sequence's `media`."""
        for shown, each in zip(self.images, self.run.ranges, strict=True):
            yield MediaEntry(
                sha256=shown.sha256,
                mime=shown.media_type,
                kind="image",
                offset=each.start,
                length=each.length,
                num_tokens=each.num_tokens,
                placeholder_id=self.placeholder_id,
                width=shown.width,
                height=shown.height,
            )


class Collapsed(msgspec.Struct, frozen=True):
    """A sequence's ids with one placeholder for each image: what templates print and splices hold."""

    ids_T: IdRun
    runs: tuple[tuple[int, int], ...]
    """[start, end) of each image in the sequence."""

    def index(self, expanded: int) -> int:
        """Where an id of the sequence that is in no image stands now; also for the end of all ids."""
        return expanded - sum(end - start - 1 for start, end in self.runs if end <= expanded)


def collapsed(sequence: Sequence) -> Collapsed:
    """A sequence with one placeholder for each image.

    Raises: CallerError if its media overlap or lie outside of it.
    """
    runs = tuple((each.offset, each.offset + each.length) for each in sequence.media)
    try:
        ExpandedIds(sequence.token_ids, tuple(ImageRange(start, end - start, 0) for start, end in runs))
    except ValueError as misplaced:
        problem = f"The media of sequence {sequence.sequence_id} are not in order: {misplaced}"
        raise CallerError(problem, "Look at the file with `turnstile validate`") from misplaced
    pieces: list[IdRun] = []
    at = 0
    for each, (start, end) in zip(sequence.media, runs, strict=True):
        pieces += (sequence.token_ids.slice(at, start), IdRun.of((each.placeholder_id,)))
        at = end
    return Collapsed(join((*pieces, sequence.token_ids.slice(at))), runs)


class Spelling:
    """Spells out the ids of one forest, which no longer grows."""

    def __init__(self, forest: Forest) -> None:
        self._forest = forest

    @cached_property
    def _known(self) -> Mapping[ImagePlace, ImageRun]:
        return known_runs(self._forest)

    @cached_property
    def _placeholder_id(self) -> int | None:
        """None: the rollout has no image."""
        started = (state.started for state in self._forest.calls.values())
        return next((each.placeholder_id for each in started if each.images), None)

    def is_known(self, started: CallStarted) -> bool:
        """Whether it is known what was run for each image that a call added."""
        numbers = range(len(started.images))
        return all(ImagePlace(started.call_id, number) in self._known for number in numbers)

    def path(self, node: Node) -> Spelled:
        """All ids from the root to a completion's last one."""
        if self._placeholder_id is None:
            return Spelled(ExpandedIds(node.held_T, ()))
        return self._spelled(node.held_T, pictures(node))

    def prompt(self, started: CallStarted) -> Spelled:
        """All ids that a call ran."""
        parent = None if started.parent is None else self._forest.node(started.parent)
        held_T = IdRun() if parent is None else parent.held_T.slice(0, started.held_length)
        ids_T = held_T + started.added_A
        if self._placeholder_id is None:
            return Spelled(ExpandedIds(ids_T, ()))
        held = () if parent is None else pictures(parent, started.held_length)
        added = (
            Picture(ImagePlace(started.call_id, number), started.held_length + shown.at_A, shown, None)
            for number, shown in enumerate(started.images)
        )
        return self._spelled(ids_T, (*held, *added))

    def _spelled(self, collapsed_T: IdRun, images: Listing[Picture]) -> Spelled:
        placeholder_id = self._placeholder_id or 0
        known = [(each.at, self._known.get(each.place)) for each in images]
        return Spelled(
            spelled_out(collapsed_T, placeholder_id, known),
            tuple(each.shown for each in images),
            tuple(at for at, _ in known),
            placeholder_id,
        )
