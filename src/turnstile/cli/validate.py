"""`turnstile validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnstile.cli.progress import counted
from turnstile.errors import CallerError
from turnstile.trajectory.validate import STRANGERS_LIMIT, FileCheck

INVALID = 5


def validate(
    file: Annotated[Path, typer.Argument(help="A .jsonl, .jsonl.zst or .parquet file of trajectories.")],
) -> None:
    """Check every rule of the format.

    One line a violation: `CODE rollout_id sequence index message`. Codes that begin with E are errors (exit 5),
    with W warnings (exit 0). docs/reference/validate-codes.md explains each.
    """
    if file.is_dir():
        raise CallerError(
            f"`{file}` is a store: export it first",
            f"Run `turnstile export {file} -o rollouts.jsonl`, then validate that file",
            code="no_such_file",
        )
    check = FileCheck(file)
    errors = warnings = 0
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
            f"No rollout in the first {STRANGERS_LIMIT} lines, so the rest was not read; give a file of trajectories.",
            err=True,
        )
    if errors:
        raise typer.Exit(INVALID)
