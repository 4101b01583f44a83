"""The table of what an engine does."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from turnstile.cli.engine_table import engine_table
from turnstile.engines.base import Missing, Present


def printed(present, missing):
    out = StringIO()
    engine_table(present, missing, Console(file=out, width=120))
    return [" ".join(line.split()) for line in out.getvalue().splitlines()]


def test_each_thing_is_one_line_with_its_price_and_its_flag():
    assert printed(
        (Present("stop token", "among the ids"),), (Missing("weight version", "Calls have none", "Start it with [x]"),)
    ) == [
        "engine costs to have it",
        "stop token among the ids",
        "weight version missing Calls have none Start it with [x]",
    ]


def test_an_engine_of_which_nothing_is_known_has_no_table():
    assert printed((), ()) == []
