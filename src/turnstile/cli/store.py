"""`turnstile store`: check, compact and copy a whole store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.progress import SpinnerColumn, TextColumn

from turnstile.cli.progress import counted, progress_bar
from turnstile.cli.sources import store_folders
from turnstile.cli.validate import INVALID
from turnstile.reports.store_check import StoreCheck, Weight, wanted_blobs
from turnstile.store import Reader, upkeep

store = typer.Typer(
    name="store",
    help="Check, compact and back up the directory that a server writes to.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_Directory = Annotated[Path, typer.Argument(help="Directory that `turnstile serve --store` was given.")]
_Directories = Annotated[
    Path, typer.Argument(help="Directory that `turnstile serve --store` was given, or a folder of such.")
]


@store.command()
def check(directory: _Directories) -> None:
    """Say whether a store is whole, also while a server writes to it.

    Reads the database's structure, every record and every blob; puts each rollout together and counts its tokens.
    One line a finding: `error|note CODE PLACE message`. Exit 5 if anything is lost, else 0.
    """
    if sum(_checked(folder) for folder in store_folders(directory)):
        raise typer.Exit(INVALID)


def _checked(directory: Path) -> int:
    """How many errors are found in one store."""
    counts: Counter[Weight] = Counter()
    columns = (TextColumn("check"), SpinnerColumn(), TextColumn("{task.completed} rollouts"))
    with Reader.open(directory) as reader, progress_bar(*columns) as bar:
        walk = StoreCheck(directory, reader)
        shown = bar.add_task("check", total=None)
        for finding in walk.findings():
            typer.echo(str(finding))
            counts[finding.weight] += 1
            bar.update(shown, completed=walk.attempts)
    read = f"{counted(walk.attempts, 'attempt')}, {counted(walk.records, 'record')}, {counted(walk.blobs, 'blob')} read"
    found = f"{counted(counts[Weight.ERROR], 'error')}, {counted(counts[Weight.NOTE], 'note')}"
    typer.echo(f"{directory}: {read}; {found}", err=True)
    return counts[Weight.ERROR]


@store.command()
def compact(directory: _Directory) -> None:
    """Give back the space of what no record names any more; no server may be running on the store.

    Removes blobs that nothing names and what killed writers left, and rewrites the database without its free pages,
    for which the disk needs room for it once more. Records are never removed.
    """

    def wanted() -> frozenset[str]:
        with Reader.open(directory) as reader:
            return wanted_blobs(reader)

    done = upkeep.compact(directory, wanted)
    sizes = f"{decimal(done.bytes_before)} -> {decimal(done.bytes_after)}"
    typer.echo(f"{directory}: {sizes}, {counted(done.blobs_removed, 'blob')} removed", err=True)


@store.command()
def backup(
    directory: _Directory,
    target: Annotated[Path, typer.Argument(help="Directory for the copy; made if it is not there.")],
) -> None:
    """Copy a store as it is at one moment, also while a server writes to it."""
    with progress_bar(TextColumn("backup"), SpinnerColumn(), TextColumn("{task.completed} blobs")) as bar:
        shown = bar.add_task("backup", total=None)
        copied = upkeep.back_up(directory, target, lambda done: bar.update(shown, completed=done))
    typer.echo(f"{directory} copied to {target}: the journal and {counted(copied, 'blob')}", err=True)
