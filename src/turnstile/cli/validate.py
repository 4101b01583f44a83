"""`turnstile validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnstile.trajectory.validate import validate_file

INVALID = 5


def validate(
    file: Annotated[Path, typer.Argument(help="A .jsonl, .jsonl.zst or .parquet file of trajectories.")],
) -> None:
    """Check every rule of the format.

    One line a violation: `CODE rollout_id sequence index message`. Codes that begin with E are errors (exit 5),
    with W warnings (exit 0). docs/reference/validate-codes.md explains each.
    """
    errors = warnings = 0
    for violation in validate_file(file):
        typer.echo(str(violation))
        if violation.code.startswith("E"):
            errors += 1
        else:
            warnings += 1
    typer.echo(f"{file}: {errors} errors, {warnings} warnings", err=True)
    if errors:
        raise typer.Exit(INVALID)
