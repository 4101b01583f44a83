"""`turnstile export`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from turnstile.cli.progress import counted, progress_bar
from turnstile.errors import CallerError, StoreError
from turnstile.history.forest import Forest
from turnstile.store import Reader, RolloutSummary
from turnstile.trajectory.assemble import ConservationError, assemble
from turnstile.trajectory.files import write
from turnstile.trajectory.format import Rollout


def export(
    store: Annotated[Path, typer.Argument(help="Directory of the journal.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write: .jsonl, .jsonl.zst or .parquet.")],
    rollout: Annotated[list[str] | None, typer.Option(help="Only this rollout; may be given again.")] = None,
    group: Annotated[str | None, typer.Option(help="Only rollouts of this group.")] = None,
) -> None:
    """Write trajectories in the neutral format, also while the server runs.

    Every attempt of every rollout is written; one that is still open is marked `running`. One that is damaged is
    named, the others are written, and the exit code is 1.
    """
    with Reader.open(store) as reader:
        if not reader.rollouts(limit=1):
            raise CallerError(f"No rollouts in {store}", "Run an agent through its server first", code="store_empty")
        chosen = _chosen(reader, rollout or [], group)
        with progress_bar(TextColumn("export"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
            lost: list[str] = []
            count = write(output, bar.track(_assembled(reader, chosen, lost), total=len(chosen)))
    typer.echo(f"{counted(count, 'rollout')} written to {output}", err=True)
    for line in lost:
        typer.echo(f"turnstile: not written: {line}", err=True)
    if lost:
        raise typer.Exit(1)


def _chosen(reader: Reader, names: list[str], group: str | None) -> list[RolloutSummary]:
    found = [summary for summary in _all(reader, group) if not names or summary.rollout_id in names]
    missing = sorted(set(names) - {summary.rollout_id for summary in found})
    if missing:
        raise CallerError(
            f"The store has no rollout `{missing[0]}`" + (f" in group `{group}`" if group else ""),
            "See the ids with `turnstile drift STORE --by rollout`, or leave --rollout out to write all",
            code="rollout_not_found",
        )
    if not found:
        raise CallerError(
            f"The store has no rollout in group `{group}`",
            "See the groups with `turnstile drift STORE --by group`, or leave --group out to write all",
            code="rollout_not_found",
        )
    return found


def _all(reader: Reader, group: str | None) -> Iterator[RolloutSummary]:
    after = 0
    while page := reader.rollouts(group_id=group, after=after, limit=1000):
        yield from page
        after = page[-1].number


def _assembled(reader: Reader, chosen: list[RolloutSummary], lost: list[str]) -> Iterator[Rollout]:
    """The rollouts one by one; one that cannot be put together is named in `lost` and costs no other."""
    for summary in chosen:
        try:
            yield assemble(Forest.of(reader.records(summary.rollout_id, summary.attempt)))
        except (StoreError, ConservationError) as damaged:
            lost.append(f"{summary.rollout_id} attempt {summary.attempt}: {damaged}")
