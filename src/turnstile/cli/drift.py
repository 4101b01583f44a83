"""`turnstile drift`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from turnstile.cli.progress import wide_console
from turnstile.errors import CallerError
from turnstile.history.forest import Forest
from turnstile.reports.drift import Difference, Drift, DriftKind
from turnstile.reports.drift_sources import drift_of_forest, drift_of_trajectory
from turnstile.reports.shelf import ModelShelf
from turnstile.server.start import read_model_folder
from turnstile.store import Blobs, Reader
from turnstile.templates.facts import serve
from turnstile.trajectory.files import read

SHOWN = 12
"""Differences that a person is shown."""
LINE = 80
"""Columns of each of their lines."""


def drift(
    source: Annotated[Path, typer.Argument(help="A store directory, or a trajectory file.", exists=True)],
    tokenizer: Annotated[
        Path | None, typer.Option(help="Model folder to render a file's messages with; a store has its own.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a rollout, a line each.")] = False,
) -> None:
    """How many tokens a client that re-sends text would have trained on wrongly, where, and of what kind.

    Every prompt and sequence is rendered and tokenized again from its messages and compared with the ids that the
    model really saw. What differs is what Turnstile kept from going wrong.
    """
    reports = _of_store(source) if source.is_dir() else _of_file(source, tokenizer)
    if json:
        for each in reports:
            typer.echo(msgspec.json.encode(each).decode())
    else:
        found = list(reports)
        if found:
            show(found, wide_console())
        else:
            typer.echo(f"No rollouts in {source}.")


def _of_store(store: Path) -> Iterator[Drift]:
    with Reader.open(store) as reader:
        shelf = ModelShelf(reader, Blobs(store))
        after = 0
        while page := reader.rollouts(after=after):
            for summary in page:
                yield drift_of_forest(Forest.of(reader.records(summary.rollout_id, summary.attempt)), shelf)
            after = page[-1].number


def _of_file(file: Path, tokenizer: Path | None) -> Iterator[Drift]:
    if tokenizer is None:
        raise CallerError(
            f"`{file}` is a file, which does not hold the tokenizer", "Give the model's folder: --tokenizer DIR"
        )
    served = serve(read_model_folder(tokenizer), model="", stop_ids=frozenset())
    for rollout in read(file):
        yield drift_of_trajectory(rollout, served)


def show(reports: list[Drift], console: Console) -> None:
    """Print reports for a person."""
    sampled, wrong = sum(each.sampled for each in reports), sum(each.wrong for each in reports)
    prompts = sum(each.prompts for each in reports)
    differing = sum(each.prompts_differing for each in reports)
    share = f" ({wrong / sampled:.1%})" if sampled else ""
    console.print(
        f"[bold]{wrong} of {sampled} sampled tokens{share}[/] would have been trained wrongly from text:\n"
        f"they stand at or behind the first id that differs.\n"
        f"{differing} of {prompts} later prompts would have been other ids."
    )
    kinds: Counter[str] = Counter()
    for each in reports:
        kinds.update(each.wrong_by_kind)
    if not wrong:
        console.print("No drift: here the text of every history gives back the very ids that were sampled.")
        return
    console.print("By kind: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
    rows = [(each.rollout_id, found) for each in reports for found in each.differences]
    for rollout_id, found in rows[:SHOWN]:
        _show_difference(rollout_id, found, console)
    if len(rows) > SHOWN:
        console.print(f"... and {len(rows) - SHOWN} more; `turnstile drift --json` shows all.")


def _show_difference(rollout_id: str, found: Difference, console: Console) -> None:
    """Three lines of at most 80 columns: where, then both sides below each other from the difference on."""
    place = f"{rollout_id}, {found.where}: [bold]{found.kind}[/] at token {found.index}, {found.wrong} wrong"
    console.print(place, highlight=False, soft_wrap=True)
    sides = (("held", found.held_ids, found.held), ("from text", found.rendered_ids, found.rendered))
    # The texts of a spelling are equal, so there the ids are what differs to the eye.
    spelled = [str(list(ids)) if found.kind is DriftKind.RETOKENIZATION else "" for _, ids, _ in sides]
    width = max(map(len, spelled))
    for (name, _, text), ids in zip(sides, spelled, strict=True):
        line = f"  {name:9}  {ids:{width}}{'  ' if width else ''}{text!r}"
        console.print(escape(line if len(line) <= LINE else f"{line[: LINE - 2]} …"), highlight=False, soft_wrap=True)
