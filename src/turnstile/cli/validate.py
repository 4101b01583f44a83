"""`turnstile validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from turnstile.cli.progress import counted, progress_bar
from turnstile.trajectory.validate import STRANGERS_LIMIT, FileCheck, UnknownMeaning

INVALID = 5


class RolloutsSoFar(ProgressColumn):
    """How many rollouts a check has read, also while it finds nothing wrong."""

    def __init__(self, check: FileCheck) -> None:
        super().__init__()
        self._check = check

    def render(self, task: Task) -> Text:
        """The count as it is now."""
        del task
        return Text(counted(self._check.rollouts, "rollout"))


def validate(
    file: Annotated[
        Path, typer.Argument(help="A .jsonl, .jsonl.zst or .parquet file of trajectories, or a folder of such files.")
    ],
    allow_unknown: Annotated[
        bool,
        typer.Option("--allow-unknown", help="Only warn where the meaning of trained log-probabilities is unknown."),
    ] = False,
) -> None:
    """Check every rule of the format.

    One line a violation: `CODE rollout_id sequence index message`. Codes that begin with E are errors (exit 5),
    with W warnings (exit 0). docs/reference/validate-codes.md explains each.
    """
    check = FileCheck(file, UnknownMeaning.ALLOWED if allow_unknown else UnknownMeaning.REFUSED)
    errors = warnings = 0
    with progress_bar(TextColumn("validate"), SpinnerColumn(), RolloutsSoFar(check)) as bar:
        bar.add_task("validate", total=None)
        for violation in check.violations():
            typer.echo(str(violation))
            if violation.code.startswith("E"):
                errors += 1
            else:
                warnings += 1
    read = f"{counted(check.rollouts, 'rollout')} read, {counted(errors, 'error')}, {counted(warnings, 'warning')}"
    typer.echo(f"{file}: {read}", err=True)
    if check.gave_up:
        typer.echo(
            f"No rollout in the first {STRANGERS_LIMIT} lines of a file, so its rest was not read;"
            " give files of trajectories.",
            err=True,
        )
    if errors:
        raise typer.Exit(INVALID)
