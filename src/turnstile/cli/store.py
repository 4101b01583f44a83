"""`turnstile store`: check, compact, prune and copy a whole store."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.filesize import decimal
from rich.progress import SpinnerColumn, TextColumn

from turnstile.cli.duration import duration_s
from turnstile.cli.progress import counted, progress_bar
from turnstile.cli.sources import store_folders
from turnstile.cli.validate import INVALID
from turnstile.reports.salvage import Salvager
from turnstile.reports.store_check import StoreCheck, Weight, wanted_blobs
from turnstile.store import Reader, upkeep
from turnstile.store.beside import beside, committed
from turnstile.store.deletion import Unexported
from turnstile.store.pruning import Due, Keep, Pruner

T = TypeVar("T")
store = typer.Typer(
    name="store",
    help="Check, compact, prune, back up and salvage the directory that a server writes to.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

_Directory = Annotated[
    Path, typer.Argument(metavar="STORE", help="Directory that `turnstile serve --store` was given.")
]
_Directories = Annotated[
    Path,
    typer.Argument(metavar="STORE", help="Directory that `turnstile serve --store` was given, or a folder of such."),
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
def prune(
    directory: _Directory,
    older_than: Annotated[
        str, typer.Option(metavar="TIME", help="Delete what was closed longer ago, such as 7d, 12h, 90m.")
    ] = "",
    larger_than: Annotated[
        float | None, typer.Option(metavar="GB", min=0.0, help="Delete the oldest until the store takes so many GB.")
    ] = None,
    unexported: Annotated[
        bool, typer.Option("--unexported", help="Delete also what was never exported: nobody has it then.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Delete old closed rollouts that were exported, also while a server runs on the store.

    Of each a line is printed, and a tombstone stays: id, attempt, when, why, how many calls and tokens. Rollouts that
    are open are never deleted. With neither option it only removes what earlier deletions left.
    """
    keep = Keep(
        for_s=duration_s(older_than, "--older-than") if older_than else None,
        size_bytes=None if larger_than is None else int(larger_than * 1e9),
        unexported=Unexported.DELETE if unexported else Unexported.KEEP,
    )
    if dry_run:
        _tell_due(directory, keep)
        return
    with beside(directory) as connection:

        def transact(step: Callable[[sqlite3.Connection], T]) -> T:
            with committed(connection):
                return step(connection)

        pruner = Pruner(directory, transact, _now, _breathe)
        pruned = pruner.prune(keep, _tell_gone)
        pruner.tidy(pruned)
    records, blobs = counted(pruned.records, "record"), counted(pruned.blobs, "blob")
    typer.echo(f"{directory}: {counted(pruned.attempts, 'attempt')} deleted, {records} and {blobs} removed", err=True)


def _tell_due(directory: Path, keep: Keep) -> None:
    found = list(Pruner(directory, _nothing_changes, _now, _breathe).due(keep))
    for due in found:
        typer.echo(f"would delete {due.rollout_id} attempt {due.attempt} ({due.reason}): {decimal(due.stored_bytes)}")
    total = decimal(sum(due.stored_bytes for due in found))
    typer.echo(f"{directory}: {counted(len(found), 'attempt')} of {total} would be deleted", err=True)


def _tell_gone(due: Due) -> None:
    typer.echo(f"deleted {due.rollout_id} attempt {due.attempt} ({due.reason}): {decimal(due.stored_bytes)}")


def _nothing_changes(_step: Callable[[sqlite3.Connection], T], /) -> T:
    raise AssertionError("looking changes nothing")


def _breathe() -> bool:
    """Let a running server have the database between two steps."""
    time.sleep(0.002)
    return True


def _now() -> datetime:
    return datetime.now(UTC)


@store.command()
def salvage(
    directory: Annotated[Path, typer.Argument(help="Directory of a damaged store; nothing of it is changed.")],
    target: Annotated[Path, typer.Argument(help="Directory for the new store; made if it is not there.")],
) -> None:
    """Make a new store of all that a damaged one still holds, and say exactly what is lost.

    Whole rollouts are kept as they were. Of others the records up to the first that is gone are kept; they are closed
    as `aborted` (`store_damaged`) and withheld from training. One line for each, and for each lost blob:
    `cut|lost PLACE message`. Exit 5 if anything is lost, else 0.
    """
    done = Salvager(directory, target, _now, lambda each: typer.echo(str(each))).run()
    kept = f"{counted(done.whole, 'attempt')} whole, {done.cut} cut, {done.lost} lost"
    blobs = f"{counted(done.blobs, 'blob')} kept, {done.blobs_lost} lost"
    typer.echo(f"{directory} saved to {target}: {kept}; {blobs}", err=True)
    if not done.is_complete:
        raise typer.Exit(INVALID)


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
