"""`turnstile demo`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from turnstile.cli.demo_agent import Folder, run_agent
from turnstile.cli.drift_page import show as show_drift
from turnstile.cli.program import program_name
from turnstile.cli.progress import counted, download_bar, wide_console
from turnstile.cli.timeline import show_timeline
from turnstile.client import Client, RolloutHandle
from turnstile.config import Settings
from turnstile.engines import EMBEDDED
from turnstile.errors import CallerError
from turnstile.history.forest import Forest
from turnstile.reports.drift_sources import drift_of_forest
from turnstile.reports.shelf import ModelShelf
from turnstile.server.local import serving
from turnstile.store import Blobs, Reader
from turnstile.trajectory.files import write
from turnstile.trajectory.validate import validate_file


def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the store and the trajectory.")] = Path(
        "turnstile-demo"
    ),
) -> None:
    """A real agent and a real small model through the proxy, in a minute.

    Starts SmolLM2-135M on the CPU (98 MB, fetched once), lets an agent on the OpenAI SDK work on files with it, and
    shows what was recorded: the rollout as a timeline, the drift report, and the exported trajectory, validated.
    """
    try:
        from openai import OpenAI
    except ImportError:
        raise CallerError(
            "The demo's agent needs the OpenAI SDK",
            "In the clone: pip install '.[demo]', or make demo",
            code="demo_missing",
        ) from None
    console = wide_console()
    began = time.monotonic()
    store = output / "store"
    settings = Settings(engine=EMBEDDED, store=store, port=0)
    with download_bar() as show, serving(settings, show) as turnstile:
        console.print(f"[bold]1. The agent[/] talks to Turnstile at {turnstile.url} and Turnstile to SmolLM2-135M")
        with tempfile.TemporaryDirectory(prefix="turnstile-demo-") as folder, turnstile.rollout() as rollout:
            client = OpenAI(base_url=rollout.openai_base_url, api_key=rollout.agent_key, max_retries=2)
            with client:
                _run(client, Path(folder), console)
            done = (Path(folder) / "sea.txt").is_file()
            rollout.finish(reward=1.0 if done else 0.0)
        _report(turnstile, rollout, store, output, console)
    console.print(f"\nDone in {time.monotonic() - began:.1f} s.")


def _run(client: object, folder: Path, console: Console) -> None:
    from openai import OpenAI

    assert isinstance(client, OpenAI)
    model = client.models.list().data[0].id
    for step in run_agent(client, model, Folder(folder), lambda piece: console.print(escape(piece), end="")):
        console.print(f"   {escape(step)}", highlight=False)
    console.print()


def _report(turnstile: Client, rollout: RolloutHandle, store: Path, output: Path, console: Console) -> None:
    trajectory = rollout.trajectory()
    with Reader.open(store) as reader:
        shelf = ModelShelf(reader, Blobs(store))
        forest = Forest.of(reader.records(rollout.rollout_id))
        served = shelf.served(next(iter(forest.heads.values())))
        console.print("\n[bold]2. What the model saw and sampled[/]")
        show_timeline(trajectory, served.tokenizer.decode, console)
        console.print("\n[bold]3. What a client of text would have made of it[/]")
        show_drift([drift_of_forest(forest, shelf)], console)
    file = output / f"{rollout.rollout_id}.jsonl"
    write(file, [trajectory])
    problems = list(validate_file(file))
    errors = sum(problem.code.startswith("E") for problem in problems)
    found = f"{counted(errors, 'error')}, {counted(len(problems) - errors, 'warning')}"
    console.print(f"\n[bold]4. The trajectory[/] is in {file}: {found}", soft_wrap=True)
    for problem in problems:
        console.print(f"   {escape(str(problem))}", highlight=False, soft_wrap=True)
    if errors:
        raise typer.Exit(5)
    if problems:
        console.print("   Expected here, because the demo forces its tool calls: docs/reference/validate-codes.md")
    program = program_name()
    console.print(
        f"   Next: {program} export {store} -o all.parquet\n"
        f"         {program} drift {store} --json\n"
        f"         {program} serve --engine embedded --store {store}    and point your own agent at it",
        highlight=False,
        soft_wrap=True,
    )
