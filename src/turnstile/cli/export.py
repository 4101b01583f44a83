"""`turnstile export`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from turnstile.cli.progress import counted, progress_bar
from turnstile.cli.sources import AttemptKey, Selection, Source, open_source
from turnstile.cli.trainers import export_for, refuse_without_trainer, told
from turnstile.errors import StoreError
from turnstile.journal import RolloutStatus
from turnstile.trajectory.converters import CONVERTERS
from turnstile.trajectory.converters.options import Advantage, OneSequence, Options, RawLogprobs
from turnstile.trajectory.files import open_writer
from turnstile.trajectory.format import Rollout
from turnstile.trajectory.rules import Compaction, Rules, Unselected, Weights
from turnstile.trajectory.side_files import SideBytesLost, SideWriter


def export(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="STORE",
            help="A store or a folder of stores; or a trajectory file, or a folder of such files, to convert.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write: .jsonl, .jsonl.zst or .parquet.")],
    rollout: Annotated[list[str] | None, typer.Option(help="Only this rollout; may be given again.")] = None,
    group: Annotated[str | None, typer.Option(help="Only rollouts of this group.")] = None,
    weights: Annotated[
        Weights,
        typer.Option(
            help="How much a trained token counts: 1; 1/k in each of k sequences that share it; or so that the weights"
            " of each rollout, or of each sequence, add up to 1."
        ),
    ] = Weights.TOKEN,
    train_compaction: Annotated[
        bool, typer.Option("--train-compaction", help="Train summaries that a later call went on from.")
    ] = False,
    train_unselected: Annotated[
        bool, typer.Option("--train-unselected", help="Train choices that were not taken up although another was.")
    ] = False,
    trainer: Annotated[
        str,
        typer.Option("--for", help=f"Write one trainer's own shape: {', '.join(each.name for each in CONVERTERS)}."),
    ] = "",
    model: Annotated[str, typer.Option(help="With --for: only sequences of this model.")] = "",
    advantage: Annotated[
        Advantage, typer.Option(help="With --for: how an advantage comes from the rewards of a group.")
    ] = Advantage.CENTERED,
    one_sequence: Annotated[
        OneSequence, typer.Option(help="With --for: which sequence stands for a rollout that has several.")
    ] = OneSequence.REFUSE,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="With --for: leave out, and count, what is refused with this code."),
    ] = None,
    allow_raw: Annotated[
        bool, typer.Option("--allow-raw", help="With --for: take log-probabilities as they are, whatever they are.")
    ] = False,
    group_size: Annotated[int, typer.Option(min=0, help="With --for: rollouts in each group; 0: any number.")] = 0,
    max_length: Annotated[int, typer.Option(min=0, help="With --for: ids in a row; 0: no limit.")] = 0,
    prompt_length: Annotated[
        int, typer.Option(min=0, help="With --for: ids in a row's prompt region; 0: as many as the prompt has.")
    ] = 0,
    env_name: Annotated[str, typer.Option(help="With --for: the environment's name.")] = "turnstile",
    no_mark: Annotated[
        bool, typer.Option("--no-mark", help="Do not note in the store that these rollouts left it.")
    ] = False,
) -> None:
    """Write trajectories in the neutral format, also while the server runs.

    Every attempt of every rollout is written; one that is still open is marked `running`. One that is damaged is
    named, the others are written, and the exit code is 1. Images and side arrays are put into `FILE.media` and
    `FILE.arrays`.

    What was closed and is written whole is noted in the store as exported, with the file and the time: retention may
    delete it then. `--no-mark` leaves that out.

    Given a trajectory file in place of a store, it writes the same rollouts in the other form. With `--for` it writes
    one trainer's own shape instead, a sample a line; what that trainer cannot express is refused by name.
    """
    options = Options(
        model=model,
        one_sequence=one_sequence,
        raw_logprobs=RawLogprobs.ALLOW if allow_raw else RawLogprobs.REFUSE,
        advantage=advantage,
        drop=frozenset(drop or ()),
        group_size=group_size,
        max_length=max_length,
        prompt_length=prompt_length,
        env_name=env_name,
    )
    rules = Rules(
        weights=weights,
        compaction=Compaction.TRAINED if train_compaction else Compaction.MASKED,
        unselected=Unselected.TRAINED if train_unselected else Unselected.DISCARDED,
    )
    with open_source(source, Selection(tuple(rollout or ()), group), rules) as found:
        if trainer:
            report, left = export_for(found, output, trainer, options)
            typer.echo(told(report, output, trainer), err=True)
        else:
            refuse_without_trainer(options)
            written = _write(found, output)
            left = written.left
            typer.echo(f"{counted(written.rollouts, 'rollout')} written to {output}{written.told()}", err=True)
        if not no_mark:
            _mark(found, left, output)
    for line in found.lost:
        typer.echo(f"turnstile: {line}", err=True)
    if found.lost:
        raise typer.Exit(1)


def _mark(found: Source, left: Sequence[AttemptKey], output: Path) -> None:
    """Note what left. A store that cannot be written keeps what it has, so that is no fault of the export."""
    try:
        found.mark(left, str(output.resolve()), datetime.now(UTC))
    except StoreError as refused:
        typer.echo(f"note: not noted in the store as exported: {refused}", err=True)


class _Written(msgspec.Struct):
    """What was written, in all."""

    rollouts: int = 0
    sampled: int = 0
    trainable: int = 0
    masked: int = 0
    discarded: int = 0
    running: int = 0
    """Rollouts that were still open."""
    bare: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Rollouts without a sequence, by status."""
    left: list[AttemptKey] = []
    """Closed attempts that are written whole."""

    def add(self, rollout: Rollout) -> None:
        counts = rollout.token_counts
        self.rollouts += 1
        self.sampled += counts.sampled
        self.trainable += counts.trainable
        self.masked += sum(counts.masked.values())
        self.discarded += sum(counts.discarded.values())
        self.running += rollout.status == RolloutStatus.RUNNING
        if not rollout.sequences:
            self.bare[rollout.status] += 1

    def told(self) -> str:
        """Where each sampled token went, and which rollouts give a trainer nothing."""
        where = f"{self.trainable} trainable, {self.masked} masked, {self.discarded} discarded"
        lines = [f": {self.sampled} sampled tokens = {where}"]
        if self.running:
            lines.append(f"{counted(self.running, 'rollout')} still open: what comes later is not in the file")
        if self.bare:
            statuses = ", ".join(f"{number} {status}" for status, number in sorted(self.bare.items()))
            lines.append(f"{counted(self.bare.total(), 'rollout')} without a sequence: {statuses}")
        return "\n".join(lines)


def _write(source: Source, output: Path) -> _Written:
    written, sides = _Written(), SideWriter(output, source)
    with (
        progress_bar(TextColumn("export"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar,
        open_writer(output) as writer,
    ):
        for rollout in bar.track(source.rollouts(), total=source.total):
            try:
                sides.write(rollout)
            except SideBytesLost as lost:
                source.lost.append(f"written without its files: {rollout.rollout_id} attempt {rollout.attempt}: {lost}")
            else:
                if rollout.status != RolloutStatus.RUNNING:
                    written.left.append((rollout.rollout_id, rollout.attempt))
            writer.write(rollout)
            written.add(rollout)
    return written
