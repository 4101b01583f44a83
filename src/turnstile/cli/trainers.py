"""The part of `turnstile export` that writes one trainer's own shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from turnstile.cli.progress import counted, progress_bar
from turnstile.cli.sources import AttemptKey, Source
from turnstile.errors import CallerError
from turnstile.journal import RolloutStatus
from turnstile.trajectory.converters import converter_named
from turnstile.trajectory.converters.base import Media
from turnstile.trajectory.converters.conversion import Report, conversion_of
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.samples import write_samples
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.side_files import SideWriter


def export_for(source: Source, output: Path, trainer: str, options: Options) -> tuple[Report, tuple[AttemptKey, ...]]:
    """Write the samples of one trainer, and the images beside them where it takes images.

    Returns: what was written, and the closed attempts that are in it; none if something was left out.
    Raises: CallerError for what the trainer cannot express; nothing is written then.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    carried = converter_named(trainer).facts.media is Media.CARRIED
    # Images are written by the second pass, which begins when the first has refused nothing.
    left: list[AttemptKey] = []
    passes = iter((("survey", None), (f"export for {trainer}", SideWriter(output, source) if carried else None)))
    with progress_bar(*columns) as bar:

        def rollouts() -> Iterable[Rollout]:
            # What is lost is told once, of the pass that writes.
            source.lost.clear()
            left.clear()
            name, sides = next(passes)
            return bar.track(_with_sides(source, sides, left), total=source.total, description=name)

        conversion = conversion_of(rollouts, trainer, options)
        write_samples(output, conversion)
    return conversion.report, () if conversion.report.left_out else tuple(left)


def _with_sides(source: Source, sides: SideWriter | None, left: list[AttemptKey]) -> Iterator[Rollout]:
    for rollout in source.rollouts():
        if sides is not None:
            sides.write(rollout)
        if rollout.status != RolloutStatus.RUNNING:
            left.append((rollout.rollout_id, rollout.attempt))
        yield rollout


def refuse_without_trainer(options: Options) -> None:
    """Raises: CallerError `option_invalid` if something is asked for that only a conversion can do."""
    if options != Options():
        raise CallerError(
            "An option that only a trainer's own shape has was given without `--for`",
            "Name the trainer with `--for`, or leave the option out; the neutral format holds everything",
            code="option_invalid",
        )


def told(report: Report, output: Path, trainer: str) -> str:
    """What was written and what was not, for people."""
    lines = [
        f"{counted(report.samples, 'sample')} for {trainer} written to {output}: "
        f"{counted(report.rollouts, 'rollout')}, {counted(report.sequences, 'sequence')}, "
        f"{counted(report.trained_tokens, 'trained token')}"
    ]
    if report.left_out:
        lines.append("left out: " + ", ".join(f"{number} {reason}" for reason, number in report.left_out.items()))
    return "\n".join([*lines, *(f"note: {note}" for note in report.notes)])
