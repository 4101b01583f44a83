"""`turnstile replay`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from turnstile.cli.progress import progress_bar, wide_console
from turnstile.cli.replay_page import show_replay
from turnstile.errors import CallerError
from turnstile.generation import Head, Retention
from turnstile.history.forest import Forest
from turnstile.journal import Record
from turnstile.parsing import formats
from turnstile.reports.replay import ReplayModel, Setting
from turnstile.reports.replay import replay as play_again
from turnstile.reports.replay_outcome import ReplayReport, outcome
from turnstile.reports.same_tokens import refuse_other_tokens
from turnstile.reports.shelf import ModelShelf, refuse_headless
from turnstile.server.certificates import certificate_of, certificates_folder, refuse_slow_template
from turnstile.server.local_files import read_model_folder
from turnstile.store import Blobs, Reader
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles
from turnstile.templates.proving import take_over
from turnstile.templates.tokenizer import Tokenizer

DIFFERENT = 6
"""Exit code: a prompt is not the recorded one."""


class Instead(msgspec.Struct, frozen=True):
    """What stands in for what the rollout was served with."""

    template: str | None
    tokenizer_json: str | None


def replay(
    store: Annotated[Path, typer.Argument(help="Directory of the journal.", exists=True, file_okay=False)],
    rollout: Annotated[str, typer.Argument(help="Id of the rollout.")],
    attempt: Annotated[int | None, typer.Option(help="Which attempt; the latest if left out.", min=1)] = None,
    template: Annotated[
        Path | None,
        typer.Option(
            help="Chat template file to render with instead of the recorded one.", exists=True, dir_okay=False
        ),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            help="Folder whose tokenizer.json encodes instead of the recorded one; it must mean the same by every"
            " recorded id.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    retention: Annotated[
        Retention | None, typer.Option(help="Retention policy instead of the one that the rollout began with.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Feed a rollout's recorded requests through the pipeline again, without an engine, and compare the prompts' ids.

    As it is, every prompt must come out with the very ids that were recorded: anything else is a fault of this version,
    or a store that was changed. With `--template`, `--tokenizer` or `--retention` the same run says what would have
    happened: the agent's requests and the model's words stay, and you see which calls would have been spliced, forked
    or rendered again, and with how many tokens.

    Exit code 0: all prompts are equal; 6: one differs, or could not be planned. Nothing in the store changes.

        turnstile replay runs ro-1a2b
        turnstile replay runs ro-1a2b --template new.jinja
        turnstile replay runs ro-1a2b --retention template --json
    """
    instead = Instead(
        template=_text(template) if template else None,
        tokenizer_json=read_model_folder(tokenizer).tokenizer_json if tokenizer else None,
    )
    with Reader.open(store) as reader:
        records = _records(reader, rollout, attempt)
        forest = Forest.of(records)
        refuse_headless(forest, rollout)
        shelf = ModelShelf(reader, Blobs(store))
        report = _report(records, shelf, _models(forest, shelf, instead), retention)
    if json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        show_replay(report, wide_console())
    raise typer.Exit(DIFFERENT if report.differing else 0)


def _text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(
            f"Cannot read `{file}`: {error}", "Give a UTF-8 text file that this user can read", code="file_unreadable"
        ) from error
    if not text:
        raise CallerError(f"`{file}` is empty", "Give the file with the chat template")
    return text


def _records(reader: Reader, rollout: str, attempt: int | None) -> list[Record]:
    records = list(reader.records(rollout, attempt))
    if not records:
        which = f"`{rollout}`" if attempt is None else f"`{rollout}` with attempt {attempt}"
        raise CallerError(
            f"The store has no rollout {which}",
            "See the ids with `turnstile drift STORE --by rollout`",
            code="rollout_not_found",
        )
    return records


def _models(forest: Forest, shelf: ModelShelf, instead: Instead) -> Callable[[Head], ReplayModel]:
    """What is served for each head: what it was rendered with, with whatever stands in for a part of it."""
    models: dict[tuple[str, str], ReplayModel] = {}
    for head in {_named(head): head for head in forest.heads.values()}.values():
        card = shelf.card(head)
        files = _files(forest, card.files, instead)
        refuse_slow_template(files)
        served = serve(files, model=card.model, stop_ids=frozenset(card.stop_ids))
        take_over(served, certificate_of(served, certificates_folder()))
        found = formats.detect(files.tool_use_template or files.chat_template)
        named = card.answer_format
        models[_named(head)] = ReplayModel(served, formats.by_name(named, found.reasoning) if named else found)
    return lambda head: models[_named(head)]


def _named(head: Head) -> tuple[str, str]:
    return head.tokenizer_sha256, head.chat_template_sha256


def _files(forest: Forest, recorded: ModelFiles, instead: Instead) -> ModelFiles:
    files = recorded
    if instead.template is not None:
        files = msgspec.structs.replace(files, chat_template=instead.template, tool_use_template="")
    if instead.tokenizer_json is not None:
        own, given = (Tokenizer.from_json(text) for text in (recorded.tokenizer_json, instead.tokenizer_json))
        refuse_other_tokens(forest, own, given)
        files = msgspec.structs.replace(files, tokenizer_json=instead.tokenizer_json)
    return files


def _report(
    records: Sequence[Record],
    shelf: ModelShelf,
    model: Callable[[Head], ReplayModel],
    retention: Retention | None,
) -> ReplayReport:
    with progress_bar(TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("records", total=len(records))
        setting = Setting(model, retention, lambda done, total: bar.update(task, completed=done, total=total))
        replayed = asyncio.run(play_again(records, setting))
    return outcome(replayed, lambda head, ids: shelf.served(head).tokenizer.decode(ids))
