"""`turnstile drift`."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, assert_never

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from turnstile.cli.drift_page import show, show_calls, show_groups, show_rollouts, show_totals
from turnstile.cli.progress import progress_bar, wide_console
from turnstile.cli.sources import store_folders
from turnstile.errors import CallerError, StoreError
from turnstile.history.forest import Forest
from turnstile.reports.drift import CallDrift, Drift, Figures, by_group, total
from turnstile.reports.drift_sources import drift_of_forest, drift_of_trajectory
from turnstile.reports.shelf import ModelShelf, refuse_headless
from turnstile.server.local_files import read_model_folder
from turnstile.store import Blobs, Reader, RolloutSummary
from turnstile.templates.facts import serve
from turnstile.templates.served import Served
from turnstile.trajectory.files import read
from turnstile.trajectory.format import Rollout


class By(enum.StrEnum):
    """What one row stands for."""

    CALL = "call"
    ROLLOUT = "rollout"
    GROUP = "group"
    STORE = "store"


class CallRow(msgspec.Struct, frozen=True):
    """One call, as a line of JSON."""

    rollout_id: str
    attempt: int
    group_id: str | None
    call: CallDrift


class GroupRow(msgspec.Struct, frozen=True):
    """One group, as a line of JSON; null: rollouts without one."""

    group_id: str | None
    rollouts: int
    figures: Figures
    not_compared: int = 0
    """Of the rollouts, those of which some calls or sequences, or all, could not be compared."""


class StoreRow(msgspec.Struct, frozen=True):
    """All that was read, as a line of JSON."""

    rollouts: int
    figures: Figures
    not_compared: int = 0
    """As in a group's row."""


def drift(
    source: Annotated[
        Path, typer.Argument(help="A store directory, a folder of such, or a trajectory file.", exists=True)
    ],
    tokenizer: Annotated[
        Path | None, typer.Option(help="Model folder to render a file's messages with; a store has its own.")
    ] = None,
    by: Annotated[By | None, typer.Option(help="One row a call, rollout, group, or for the whole store.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a row, a line each; a row is a rollout.")
    ] = False,
) -> None:
    """How many tokens a client that re-sends text would have trained on wrongly, where, and of what kind.

    The prompt of every answered call, and every finished sequence, is rendered and tokenized again from its messages
    and compared with the ids that the model really saw. What differs is what Turnstile kept from going wrong.

    Without `--by`: the sum, the kinds, and the first places. A trajectory file has sequences and no prompts.

    What cannot be compared is counted, named on stderr with the reason, and costs no other rollout. Exit code 0: all
    was compared; 1: some was not.
    """
    reports = list(_of_store(source) if source.is_dir() else _of_file(source, tokenizer))
    if json:
        for row in _rows(reports, by or By.ROLLOUT):
            typer.echo(msgspec.json.encode(row).decode())
    elif not reports:
        typer.echo(f"No rollouts in {source}.")
    else:
        _show(reports, by)
    for each in reports:
        if each.problem:
            typer.echo(f"turnstile: not compared: {each.rollout_id} attempt {each.attempt}: {each.problem}", err=True)
    if _not_compared(reports):
        raise typer.Exit(1)


def _not_compared(reports: list[Drift]) -> int:
    return sum(1 for each in reports if each.problem)


def _rows(reports: list[Drift], by: By) -> Iterator[msgspec.Struct]:
    match by:
        case By.CALL:
            for each in reports:
                for call in each.by_call:
                    yield CallRow(each.rollout_id, each.attempt, each.group_id, call)
        case By.ROLLOUT:
            yield from reports
        case By.GROUP:
            for group_id, members in by_group(reports).items():
                yield GroupRow(group_id, len(members), total(members), _not_compared(members))
        case By.STORE:
            yield StoreRow(len(reports), total(reports), _not_compared(reports))
        case _:
            assert_never(by)


def _show(reports: list[Drift], by: By | None) -> None:
    console = wide_console()
    match by:
        case None:
            show(reports, console)
        case By.CALL:
            show_calls(reports, console)
        case By.ROLLOUT:
            show_rollouts(reports, console)
        case By.GROUP:
            show_groups(reports, console)
        case By.STORE:
            show_totals(reports, console)
        case _:
            assert_never(by)


def _of_store(store: Path) -> Iterator[Drift]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with progress_bar(*columns) as bar:
        for folder in store_folders(store):
            with Reader.open(folder) as reader:
                shelf = ModelShelf(reader, Blobs(folder))
                for summary in bar.track(list(reader.every_rollout()), description=f"comparing {folder.name}"):
                    yield _of_rollout(reader, shelf, summary)


def _of_rollout(reader: Reader, shelf: ModelShelf, summary: RolloutSummary) -> Drift:
    try:
        forest = Forest.of(reader.records(summary.rollout_id, summary.attempt))
        refuse_headless(forest, summary.rollout_id)
        return drift_of_forest(forest, shelf)
    except StoreError as damaged:
        return Drift(
            rollout_id=summary.rollout_id,
            attempt=summary.attempt,
            group_id=summary.group_id,
            calls=summary.turns,
            problem=str(damaged),
        )


def _of_file(file: Path, tokenizer: Path | None) -> Iterator[Drift]:
    if tokenizer is None:
        raise CallerError(
            f"`{file}` is a file, which does not hold the tokenizer", "Give the model's folder: --tokenizer DIR"
        )
    served = serve(read_model_folder(tokenizer), model="", stop_ids=frozenset())
    unfit: list[CallerError] = []
    reports = [_of_exported(rollout, served, unfit) for rollout in read(file)]
    if unfit and len(unfit) == len(reports):
        raise unfit[0]
    yield from reports


def _of_exported(rollout: Rollout, served: Served, unfit: list[CallerError]) -> Drift:
    try:
        return drift_of_trajectory(rollout, served)
    except CallerError as mismatch:
        unfit.append(mismatch)
        return Drift(
            rollout_id=rollout.rollout_id,
            attempt=rollout.attempt,
            group_id=rollout.group_id,
            calls=len({call.call_id for call in rollout.calls if call.sequence is not None}),
            sequences=len(rollout.sequences),
            problem=str(mismatch),
        )
