"""The options of `turnstile serve`."""

from __future__ import annotations

import typing

import typer
from typer.models import OptionInfo

from turnstile.cli import serve_options
from turnstile.cli.serve import serve


def test_every_option_says_in_help_what_it_is_for() -> None:
    hints = typing.get_type_hints(serve, include_extras=True)
    hints.pop("return")
    told = {name: each for name, hint in hints.items() for each in hint.__metadata__ if isinstance(each, OptionInfo)}
    assert sorted(told) == sorted(hints)
    assert [name for name, each in told.items() if not (each.help or "").endswith((".", "`."))] == []


def test_no_option_stands_there_unused() -> None:
    used = {hint for hint in typing.get_type_hints(serve, include_extras=True).values() if hint is not type(None)}
    stands = {value for name, value in vars(serve_options).items() if name.endswith("Option")}
    assert stands == used


def test_the_command_is_one_that_typer_can_make() -> None:
    app = typer.Typer()
    app.command()(serve)
    assert typer.main.get_command(app).name == "serve"
