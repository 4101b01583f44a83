"""`turnstile audit`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from turnstile.cli.progress import counted, download_bar, progress_bar
from turnstile.engines import EMBEDDED, cache_home
from turnstile.engines.smollm import model_file
from turnstile.errors import CallerError
from turnstile.reports.audit import Chosen, Model, SequenceAudit, Total, choose, total
from turnstile.reports.audit import audit as audited
from turnstile.reports.audit_figures import Figures, Limits, Verdict
from turnstile.reports.audit_model import load_model

FAULTY = 7


class SequenceRow(SequenceAudit, frozen=True, kw_only=True):
    """One sequence, as a line of JSON."""

    row: Literal["sequence"] = "sequence"


class TotalRow(Total, frozen=True, kw_only=True):
    """All sequences, as the last line of JSON."""

    row: Literal["total"] = "total"


def audit(
    file: Annotated[Path, typer.Argument(help="A .jsonl, .jsonl.zst or .parquet file of trajectories, or a folder.")],
    model: Annotated[
        str, typer.Option(help="The model's folder, a .gguf file, or `embedded` for the model that Turnstile ships.")
    ],
    served: Annotated[
        str | None, typer.Option(help="Only sequences of the model that was served under this name.")
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Only so many sequences, the same ones each time.")] = None,
    float32: Annotated[
        bool, typer.Option("--float32", help="The engine computes in float32 with these weights: noise is a fault too.")
    ] = False,
    calibrate: Annotated[
        Path | None, typer.Option(help="Rollouts known to be right: up to twice their differences are noise.")
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a sequence, a line each; the last is the sum.")
    ] = False,
) -> None:
    """Recompute log-probabilities with transformers and compare them with the recorded ones.

    Each sequence is `exact`, `engine noise` or a `fault`, which is named. Needs torch and transformers. Exit code 0: no
    fault; 7: a fault; 1: nothing could be compared.
    """
    if float32 and calibrate is not None:
        raise CallerError("--float32 and --calibrate contradict each other", "Leave one of them out")
    chosen = choose(file, served=served, sample=sample)
    if not chosen.sequences:
        raise CallerError(
            f"{file} has no sequence" + (f" of a model served as `{served}`" if served else ""), "Give another file"
        )
    loaded = load_model(_path_of(model))
    limits = Limits().without_noise() if float32 else Limits()
    if calibrate is not None:
        measured = list(audited(calibrate, loaded, choose(calibrate, served=served), served=served))
        limits = Limits.twice(total(measured).figures)
    found = list(_shown(file, loaded, chosen, served, limits, json))
    whole = total(found)
    if json:
        typer.echo(msgspec.json.encode(TotalRow(**msgspec.structs.asdict(whole))).decode())
    else:
        typer.echo(f"{counted(len(found), 'sequence')}: {_line(whole.verdict, whole.figures)}")
    match whole.verdict:
        case Verdict.FAULT:
            raise typer.Exit(FAULTY)
        case Verdict.NOT_COMPARED:
            typer.echo("turnstile: nothing could be compared", err=True)
            raise typer.Exit(1)
        case Verdict.EXACT | Verdict.ENGINE_NOISE:
            pass


def _path_of(model: str) -> Path:
    if model != EMBEDDED:
        return Path(model)
    with download_bar() as show:
        return asyncio.run(model_file(cache_home(), show))


def _shown(
    file: Path,
    model: Model,
    chosen: Chosen,
    served: str | None,
    limits: Limits,
    json: bool,  # noqa: FBT001
) -> list[SequenceAudit]:
    found: list[SequenceAudit] = []
    columns = (TextColumn("auditing"), BarColumn(), MofNCompleteColumn(), TextColumn("tokens"), TimeRemainingColumn())
    with progress_bar(*columns) as bar:
        task = bar.add_task("audit", total=chosen.tokens)
        for each in audited(file, model, chosen, served=served, limits=limits):
            found.append(each)
            bar.advance(task, each.tokens)
            typer.echo(
                msgspec.json.encode(SequenceRow(**msgspec.structs.asdict(each))).decode() if json else _told(each)
            )
    return found


def _told(each: SequenceAudit) -> str:
    attempt = f" attempt {each.attempt}" if each.attempt > 1 else ""
    lines = [f"{each.sequence_id}{attempt}: {_line(each.verdict, each.figures)}"]
    if each.finding is not None:
        lines.append(f"    {each.finding.kind}: {each.finding.said}")
        if each.finding.figures.tokens:
            lines.append(f"    then left: {_figures(each.finding.figures)}")
    lines += [f"    not compared: {why}" for why in each.not_compared]
    return "\n".join(lines)


def _line(verdict: Verdict, figures: Figures) -> str:
    return f"{verdict}, {_figures(figures)}" if figures.tokens else verdict.value


def _figures(figures: Figures) -> str:
    return (
        f"{counted(figures.tokens, 'token')}, |d| mean {figures.mean_abs:.2g} max {figures.max_abs:.2g}, "
        f"d mean {figures.mean:+.1g}, beyond 0.05 {figures.beyond:.0%}, k3 {figures.k3:.2g}"
    )
