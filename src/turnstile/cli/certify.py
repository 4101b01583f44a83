"""`turnstile certify`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, assert_never

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, TextColumn
from rich.table import Table

from turnstile.cli.progress import progress_bar, wide_console
from turnstile.errors import CallerError
from turnstile.server.certificates import certificate_of, certificates_folder, refuse_slow_template
from turnstile.server.local_files import read_model_folder
from turnstile.templates.accelerators import at_hand
from turnstile.templates.advice import ENDS, MEANS, Advice, Topic, advice, for_training
from turnstile.templates.certificate import (
    Certificate,
    CertificateClass,
    ChainOutcome,
    PluginCheck,
    PluginOutcome,
    ShapeVerdict,
    Verdict,
    refused,
)
from turnstile.templates.certify import ShowStep, Step
from turnstile.templates.checks_plugins import check_plugins
from turnstile.templates.facts import serve
from turnstile.templates.files import ModelFiles, ModelFilesError
from turnstile.templates.plugins import PLUGINS
from turnstile.templates.shapes import ALL_SHAPES, Group
from turnstile.templates.tokenizer import Tokenizer

_COLOURS = {
    CertificateClass.EXACT: "green",
    CertificateClass.EXACT_REWRITES: "green",
    CertificateClass.PARTIAL: "yellow",
    CertificateClass.REFUSED: "red",
}
_VERDICTS = {
    Verdict.EXACT: "[green]exact[/]",
    Verdict.NEEDS_HISTORY: "[yellow]needs history[/]",
    Verdict.DIFFERENT: "[yellow]keeps sampled order[/]",
    Verdict.UNPROVEN: "[yellow]unproven[/]",
    Verdict.REFUSED: "[red]refused[/]",
}
_HEADINGS = {
    Topic.LOSS: "Lost, with or without Turnstile",
    Topic.SPLICE: "Not plainly exact",
    Topic.REWRITE: "What the template rewrites, and a splice does not",
    Topic.NOTE: "Also",
}
_PUT_BACK = {True: "keep the ids that were sampled", False: "are rendered again as text"}
_REWRITES = {
    "g": "opens answers with other text",
    "G": "opens answers with other text",
    "H": "rewrites the answer later",
}


def certify(
    tokenizer_dir: Annotated[
        Path, typer.Argument(help="Folder with the model's tokenizer.json and chat template; no weights needed.")
    ],
    template: Annotated[
        Path | None,
        typer.Option(help="Chat template file instead of the folder's own.", exists=True, dir_okay=False),
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Text of a token that ends answers; may be given again.")
    ] = None,
    kwargs: Annotated[str, typer.Option(help="Arguments of the template, a JSON object.")] = "{}",
    plugins: Annotated[
        bool, typer.Option("--plugins", help="Compare with other packages' hand-written bridges, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the certificate as one JSON object.")] = False,
) -> None:
    """Say whether live splicing is exact for a template and its tokenizer, and why not.

    Needs no model and no engine; the page ends with what it means for a training run. docs/certify-a-template.md
    explains every word of it.

        turnstile certify ./Qwen3-4B

        turnstile certify ./Qwen3-4B --template mine.jinja --kwargs '{"enable_thinking": false}'

    Exit code 0: certified; 3: certified with limits; 4: not certified.
    """
    _refuse_no_object(kwargs)
    files = _files(tokenizer_dir, template)
    with _progress() as show:
        certificate = files if isinstance(files, Certificate) else _certificate(files, stop or [], kwargs, show)
        if plugins and isinstance(files, ModelFiles) and not certificate.problem:
            show(Step(0, 1, "plug-ins"))
            served = serve(files, model="", stop_ids=frozenset(each.id for each in certificate.stop_tokens))
            certificate = msgspec.structs.replace(certificate, plugins=check_plugins(served, kwargs, PLUGINS))
    if json:
        typer.echo(msgspec.json.encode(certificate).decode())
    else:
        _print(certificate, wide_console())
    raise typer.Exit(certificate.exit_code)


def _refuse_no_object(kwargs: str) -> None:
    try:
        msgspec.json.decode(kwargs, type=dict[str, object])
    except msgspec.DecodeError:
        raise CallerError(
            "`--kwargs` is no JSON object", "Give it in quotes, such as --kwargs '{\"enable_thinking\": false}'"
        ) from None


def _files(folder: Path, template: Path | None) -> ModelFiles | Certificate:
    try:
        return read_model_folder(folder, _text(template) if template else None)
    except ModelFilesError as error:
        return refused(error.problem)


def _text(template: Path) -> str:
    try:
        text = template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(
            f"Cannot read `{template}`: {error}",
            "Give a UTF-8 text file that this user can read",
            code="file_unreadable",
        ) from error
    if not text:
        raise CallerError(f"`{template}` is empty", "Give the file with the chat template")
    return text


def _certificate(files: ModelFiles, stops: list[str], kwargs: str, show: ShowStep) -> Certificate:
    try:
        refuse_slow_template(files)
        stop_ids = _stop_ids(files, stops) if stops else frozenset[int]()
        served = serve(files, model="", stop_ids=stop_ids)
        return certificate_of(served, certificates_folder(), kwargs, show, faster=at_hand(files, served))
    except ModelFilesError as error:
        return refused(error.problem, kwargs)


def _stop_ids(files: ModelFiles, stops: list[str]) -> frozenset[int]:
    tokenizer = Tokenizer.from_json(files.tokenizer_json)
    found = {text: tokenizer.id_of(text) for text in stops}
    if unknown := [text for text, token_id in found.items() if token_id is None]:
        raise CallerError(
            f"The tokenizer has no token {unknown[0]!r}",
            "Give `--stop` the exact text of one token, such as `<|im_end|>`",
        )
    return frozenset(token_id for token_id in found.values() if token_id is not None)


@contextmanager
def _progress() -> Generator[ShowStep]:
    bar = progress_bar(TextColumn("checking {task.description}"), BarColumn())
    task = bar.add_task("the template", total=None)

    def show(step: Step) -> None:
        bar.update(task, description=step.what, completed=step.done, total=step.total)

    with bar:
        yield show


def _print(certificate: Certificate, console: Console) -> None:
    """The page for people."""
    colour = _COLOURS[certificate.certificate_class]
    name = certificate.certificate_class.replace("_", " ")
    console.print(f"[bold {colour}]{name}[/]  {MEANS[certificate.certificate_class]}")
    stops = ", ".join(
        f"{each.text}{' (inferred)' if each.inferred else ''}" for each in certificate.stop_tokens if each.text
    )
    if stops:
        console.print(f"Answers end with {escape(stops)}. {ENDS[certificate.stop_class]}")
    if certificate.shapes:
        console.print(_table(certificate))
        console.print(_chain_line(certificate))
        if certificate.multi_splices:
            console.print(_multi_line(certificate))
        for plugin in certificate.plugins:
            console.print(_plugin_line(plugin))
    found = advice(certificate)
    for topic, heading in _HEADINGS.items():
        _print_advice(heading, [each for each in found if each.topic is topic], console)
    console.print("\n[bold]For a training run[/]")
    console.print(Padding(f"{for_training(certificate)}", (0, 0, 0, 2)))


def _table(certificate: Certificate) -> Table:
    table = Table("request", "splice", "the template, later", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    verdicts = {each.shape: each for each in certificate.shapes}
    for group in Group:
        checked = [shape for shape in ALL_SHAPES if shape.group is group and shape.name in verdicts]
        if checked:
            table.add_row(f"[bold]{group}[/]")
        for shape in checked:
            verdict = verdicts[shape.name]
            table.add_row(f"  {shape.says}", _VERDICTS[verdict.verdict], _later(verdict))
    return table


def _later(verdict: ShapeVerdict) -> str:
    if not verdict.renders:
        return "refuses this"
    words = [_REWRITES[letter] for letter in verdict.stability if letter in _REWRITES]
    if verdict.lost:
        words.append("[red]loses text[/]")
    if verdict.verdict in (Verdict.DIFFERENT, Verdict.REFUSED):
        words.append(escape(verdict.detail))
    return ", ".join(dict.fromkeys(words)) or ("keeps it" if verdict.stability == "stable" else "")


def _chain_line(certificate: Certificate) -> str:
    said: list[str] = []
    for chain in certificate.chains:
        what = "with thinking" if chain.thinking else "16 turns"
        match chain.outcome:
            case ChainOutcome.EXACT:
                said.append(f"{what}: equal to one whole render")
            case ChainOutcome.REWRITES:
                said.append(f"{what}: the template rewrites from turn {chain.turn} on")
            case ChainOutcome.DIFFERENT | ChainOutcome.REFUSED:
                said.append(f"{what}: {chain.outcome} at turn {chain.turn}")
    return "\n" + "; ".join(said) if said else ""


def _multi_line(certificate: Certificate) -> str:
    kept = {each.tools: _PUT_BACK[each.verdict is Verdict.EXACT] for each in certificate.multi_splices}
    said = [f"{'with tools' if tools else 'without tools'} they {what}" for tools, what in kept.items()]
    if len(set(kept.values())) == 1:
        said = [f"they {what}" for what in set(kept.values())]
    return "Earlier answers, when the client changes its history: " + "; ".join(said)


def _plugin_line(check: PluginCheck) -> str:
    figures = f"same {len(check.same)}, different {len(check.different)}, it refuses {len(check.refused)}"
    match check.outcome:
        case PluginOutcome.AGREES:
            return f"{check.plugin}, bridge {check.variant}: agrees ({figures})"
        case PluginOutcome.DIFFERS:
            return f"{check.plugin}, bridge {check.variant}: differs in {', '.join(check.different)} ({figures})"
        case PluginOutcome.NOT_APPLICABLE:
            return f"{check.plugin}: has no bridge for this template"
        case PluginOutcome.NOT_INSTALLED:
            return f"{check.plugin}: not installed (`pip install {check.plugin} httpx`)"
        case _:
            assert_never(check.outcome)


def _print_advice(heading: str, found: list[Advice], console: Console) -> None:
    if not found:
        return
    console.print(f"\n[bold]{heading}[/]")
    for each in found:
        console.print(Padding(escape(each.says), (0, 0, 0, 2)))
        if each.remedy:
            console.print(Padding(f"[dim]->[/] {escape(each.remedy)}", (0, 0, 0, 4)))
