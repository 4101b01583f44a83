"""Commands: parse, call, print. No rule lives here."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from turnstile.cli.audit import audit
from turnstile.cli.certify import certify
from turnstile.cli.demo import demo
from turnstile.cli.drift import drift
from turnstile.cli.export import export
from turnstile.cli.replay import replay
from turnstile.cli.serve import serve
from turnstile.cli.store import store
from turnstile.cli.validate import validate
from turnstile.errors import CallerError, TurnstileError
from turnstile.version import __version__

READER_GONE = 141
"""What a shell reports of a program that SIGPIPE ended."""

app = typer.Typer(
    name="turnstile",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="First `turnstile demo`, then `turnstile serve`. The manual is README.md and docs/ of the repository.",
)


def _tell_version(asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if asked:
        typer.echo(f"turnstile {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Records the exact tokens an agent's model saw and sampled, and keeps them exact in every later turn."""


for command in (serve, demo, certify, export, validate, audit, drift, replay):
    app.command()(command)
app.add_typer(store)


def main() -> None:
    """The `turnstile` command: a user's mistake is one sentence on stderr and an exit code, never a traceback."""
    try:
        app()
    except TurnstileError as error:
        print(f"turnstile: {error}", file=sys.stderr)  # noqa: T201 - the one place that tells a person what was wrong
        sys.exit(2 if isinstance(error, CallerError) else 1)
    except SystemExit as end:
        # Typer and Rich turn a reader that went away (`| head`) into exit code 1, which would look like a failure.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(READER_GONE)
