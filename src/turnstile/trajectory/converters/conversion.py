"""`turnstile.convert`: rollouts in, one trainer's samples out, and a report of what was left out and why."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from turnstile.errors import CallerError
from turnstile.trajectory.check_signal import check_signal
from turnstile.trajectory.converters import CONVERTERS, converter_named
from turnstile.trajectory.converters.base import Converter, Keeps, Lost, Rows, Unit
from turnstile.trajectory.converters.options import OneSequence, Options, options_of
from turnstile.trajectory.converters.refusals import (
    is_dropped,
    refuse_rollout,
    refuse_row,
    refuse_several,
    refuse_unknown_codes,
)
from turnstile.trajectory.converters.rows import Place, Row, fault_of
from turnstile.trajectory.converters.survey import Survey, group_of, is_trained, of_another_size, survey
from turnstile.trajectory.files import read
from turnstile.trajectory.format import Fields
from turnstile.trajectory.shapes import Rollout, Sequence

Source: TypeAlias = Callable[[], Iterable[Rollout]]
"""Gives the same rollouts each time it is called."""

__all__ = ["CONVERTERS", "Conversion", "Converted", "Origin", "Report", "conversion_of", "convert"]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a sample came from, for whoever puts samples together again."""

    group_id: str | None
    rollout_id: str | None
    """None for a sample of a whole group."""
    attempt: int | None
    sequence_ids: tuple[str, ...]
    reward: float | None
    """Of the rollout; None = unscored, or a sample of a whole group."""
    row: int
    """Of the first sequence among the converted ones of its rollout."""
    rows: int
    """How many those are."""
    row_weight: float
    """1 / rows: what a row weighs where all rows of a rollout together are to weigh one."""


class Converted(msgspec.Struct, frozen=True):
    """One sample in its trainer's own fields, and where it came from."""

    origin: Origin
    sample: Fields


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rollouts."""

    samples: int
    rollouts: int
    sequences: int
    trained_tokens: int
    """Tokens that the samples let a loss count."""
    left_out: dict[str, int]
    """Reason to number of rollouts or sequences."""
    notes: tuple[str, ...]
    """What the trainer cannot be told, or will take otherwise than it is meant."""


class Conversion:
    """The samples of one trainer, made one by one while it is iterated over; `report` grows with them."""

    def __init__(self, source: Source, converter: Converter, options: Options) -> None:
        """Nothing is read before the first sample is asked for. Raises: CallerError `option_invalid`."""
        refuse_unknown_codes(options)
        self._source = source
        self._converter = converter
        self._options = options
        self._left_out: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._lost: Counter[Lost] = Counter()
        self._warned: Counter[str] = Counter()

    def __iter__(self) -> Iterator[Converted]:
        """The samples, in the order of the rollouts; a group's comes when its last rollout was seen.

        Raises: CallerError whose `code` says what the trainer cannot express (docs/reference/errors.md).
        """
        self._left_out.clear()
        self._counts.clear()
        self._lost.clear()
        self._warned.clear()
        known = survey(self._source(), self._converter.facts, self._options)
        for rows in self._units(known):
            try:
                converted = self._converted(rows)
            except CallerError as refused:
                self._leave_out(refused)
            else:
                yield converted
        if not self._counts["samples"]:
            raise CallerError(
                f"Nothing is left to convert for {self._converter.facts.trainer}{self._reasons()}",
                "Look at the file with `turnstile validate`, and at what was asked to be dropped",
                code="nothing_to_convert",
            )

    @property
    def report(self) -> Report:
        """What became of the rollouts, as far as the samples were taken."""
        return Report(
            samples=self._counts["samples"],
            rollouts=self._counts["rollouts"],
            sequences=self._counts["sequences"],
            trained_tokens=self._counts["trained_tokens"],
            left_out=dict(sorted(self._left_out.items())),
            notes=tuple(self._notes()),
        )

    def _reasons(self) -> str:
        return "".join(f"; {count} {reason}" for reason, count in sorted(self._left_out.items()))

    def _notes(self) -> Iterator[str]:
        trainer, several = self._converter.facts.trainer, self._counts["several"]
        for lost, count in sorted(self._lost.items()):
            yield f"{trainer} has no place for {lost.value}; sequences written without: {count}"
        for warning, count in sorted(self._warned.items()):
            yield f"W804 {warning}; rollouts: {count}"
        if several and self._converter.facts.rows is Rows.COUNTED:
            yield (
                f"{trainer} counts each sequence as a rollout when it compares rewards, so its baseline leans towards "
                f"rollouts with many; rollouts with several: {several}"
            )

    def _units(self, known: Survey) -> Iterator[tuple[Row, ...]]:
        unit = self._converter.facts.unit
        waiting: defaultdict[str, list[Row]] = defaultdict(list)
        seen: Counter[str] = Counter()
        for rollout, rows in self._rows(known):
            match unit:
                case Unit.SEQUENCE:
                    yield from ((row,) for row in rows)
                case Unit.ROLLOUT:
                    yield from [rows] if rows else []
                case Unit.GROUP:
                    group = group_of(rollout)
                    seen[group] += 1
                    waiting[group] += rows
                    if seen[group] == known.group_sizes[group] and waiting[group]:
                        yield tuple(waiting.pop(group))

    def _rows(self, known: Survey) -> Iterator[tuple[Rollout, tuple[Row, ...]]]:
        """Each rollout of which something may be trained, with its rows, which may be none."""
        places = _Places()
        for rollout in self._source():
            if self._is_left_out(rollout, known):
                continue
            try:
                rows = self._rows_of(rollout, places, known)
            except CallerError as refused:
                self._leave_out(refused)
                rows = ()
            if not rows and self._options.group_size:
                raise of_another_size(
                    group_of(rollout), f"is one short: rollout {rollout.rollout_id} has nothing to train"
                )
            yield rollout, rows

    def _leave_out(self, refused: CallerError) -> None:
        """Count what was asked to be left out. Raises: the refusal, if it was not."""
        if refused.code not in self._options.drop:
            raise refused
        self._left_out[refused.code] += 1

    def _is_left_out(self, rollout: Rollout, known: Survey) -> bool:
        if self._converter.facts.keeps is Keeps.ALL:
            return False
        if known.last_attempt[rollout.rollout_id] != rollout.attempt:
            self._left_out["earlier_attempt"] += 1
        elif not rollout.trainable:
            self._left_out["rollout_untrainable"] += 1
        elif code := is_dropped(rollout, self._options):
            self._left_out[code] += 1
        else:
            return False
        return True

    def _rows_of(self, rollout: Rollout, places: _Places, known: Survey) -> tuple[Row, ...]:
        refuse_rollout(rollout, self._converter.facts)
        sequences = self._chosen(rollout)
        advantage = known.advantages.get((rollout.rollout_id, rollout.attempt))
        if sequences:
            places.open(rollout)
        rows: list[Row] = []
        for at, sequence in enumerate(sequences):
            row = Row(
                rollout=rollout,
                sequence=sequence,
                row=at,
                rows=len(sequences),
                place=places.next(),
                advantage=advantage,
            )
            refuse_row(row, self._converter.facts, self._options)
            rows.append(row)
        return tuple(rows)

    def _chosen(self, rollout: Rollout) -> list[Sequence]:
        """The sequences with something to train, of one model, whose arrays agree."""
        chosen: list[Sequence] = []
        for sequence in rollout.sequences:
            model = rollout.heads[sequence.head].model
            if fault_of(rollout, sequence):
                self._left_out["row_unaligned"] += 1
            elif self._converter.facts.keeps is Keeps.TRAINED and not is_trained(sequence):
                self._left_out["incomplete" if not sequence.complete else "nothing_to_train"] += 1
            elif self._options.model not in ("", model):
                self._left_out["other_model"] += 1
            else:
                chosen.append(sequence)
        return self._one_of(rollout, chosen)

    def _one_of(self, rollout: Rollout, sequences: list[Sequence]) -> list[Sequence]:
        if len(sequences) < 2 or self._converter.facts.rows is not Rows.ONE:
            return sequences
        match self._options.one_sequence:
            case OneSequence.REFUSE:
                refuse_several(rollout, len(sequences), self._converter.facts)
                return sequences
            case OneSequence.LONGEST:
                kept = max(sequences, key=lambda sequence: len(sequence.token_ids))
            case OneSequence.LAST:
                kept = sequences[-1]
        self._left_out["other_sequence_of_its_rollout"] += len(sequences) - 1
        return [kept]

    def _converted(self, rows: tuple[Row, ...]) -> Converted:
        sample = self._converter.sample(rows, self._options)
        self._count(rows)
        return Converted(_origin(rows, self._converter.facts.unit), sample)

    def _count(self, rows: tuple[Row, ...]) -> None:
        self._counts["samples"] += 1
        for row in rows:
            first = row.row == 0
            if first and self._converter.facts.keeps is Keeps.TRAINED:
                self._warned.update(fault.message for fault in check_signal(row.rollout) if fault.code == "W804")
            self._counts["rollouts"] += first
            self._counts["several"] += first and row.rows > 1
            self._counts["sequences"] += 1
            self._counts["trained_tokens"] += sum(row.mask_T)
            self._lost.update(lost for lost in self._converter.facts.lost if _has(row, lost))


class _Places:
    """Counts rows, rollouts and groups, for trainers that have numbers where the format has names."""

    def __init__(self) -> None:
        self._rows = 0
        self._rollouts = -1
        self._groups: dict[str, int] = {}
        self._members: Counter[str] = Counter()
        self._group = ""

    def open(self, rollout: Rollout) -> None:
        """The next rows are of this rollout."""
        self._group = group_of(rollout)
        self._rollouts += 1
        self._groups.setdefault(self._group, len(self._groups))
        self._members[self._group] += 1

    def next(self) -> Place:
        """The place of the next row."""
        self._rows += 1
        return Place(
            number=self._rows - 1,
            rollout_number=self._rollouts,
            group_number=self._groups[self._group],
            in_group=self._members[self._group] - 1,
        )


def _has(row: Row, lost: Lost) -> bool:
    match lost:
        case Lost.POLICY_VERSIONS:
            return row.policy_range is not None
        case Lost.REWARD_PARTS:
            return bool(row.rollout.rewards)
        case Lost.SIDE_ARRAYS:
            return bool(row.sequence.arrays)


def _origin(rows: tuple[Row, ...], unit: Unit) -> Origin:
    first = rows[0]
    whole_group = unit is Unit.GROUP
    return Origin(
        group_id=first.rollout.group_id,
        rollout_id=None if whole_group else first.rollout.rollout_id,
        attempt=None if whole_group else first.rollout.attempt,
        sequence_ids=tuple(row.sequence.sequence_id for row in rows),
        reward=None if whole_group else first.rollout.reward,
        row=first.row,
        rows=len(rows) if whole_group else first.rows,
        row_weight=1.0 if whole_group else 1.0 / first.rows,
    )


def conversion_of(source: Source, trainer: str, options: Options) -> Conversion:
    """A conversion of rollouts that can be read twice. Raises: CallerError `trainer_unknown`."""
    return Conversion(source, converter_named(trainer), options)


def convert(rollouts: str | os.PathLike[str] | Iterable[Rollout], trainer: str, **options: object) -> Conversion:
    """The samples of one trainer from a trajectory file or from rollouts, with no part of the trainer imported.

    Iterate over the answer for `Converted` samples; its `report` says what was left out and why. A file is read
    twice, the first time for what concerns all rollouts together; an iterator is held in memory.

    Args:
        rollouts: a trajectory file, or rollouts.
        trainer: the word behind `turnstile export --for`.
        options: the fields of `Options`, in docs/train/README.md.
    Raises: CallerError `trainer_unknown` or `option_invalid`; while iterating, what a trainer cannot express.
    """
    chosen = options_of(options)
    if isinstance(rollouts, str | os.PathLike):
        path = rollouts
        return conversion_of(lambda: read(path), trainer, chosen)
    held = rollouts if isinstance(rollouts, list | tuple) else list(rollouts)
    return conversion_of(lambda: held, trainer, chosen)
