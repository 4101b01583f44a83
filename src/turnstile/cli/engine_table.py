"""What the engine was seen to do at start, and what each thing that it does not do costs."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnstile.engines.base import Missing, Present


def engine_table(present: tuple[Present, ...], missing: tuple[Missing, ...], console: Console) -> None:
    """Print one line for each; nothing if there are none."""
    if not present and not missing:
        return
    table = Table(show_edge=False, pad_edge=False, box=None)
    for heading in ("engine", "", "costs", "to have it"):
        table.add_column(heading, overflow="fold")
    for each in present:
        table.add_row(escape(each.what), escape(each.how), "", "")
    for each in missing:
        table.add_row(escape(each.what), "missing", escape(each.cost), escape(each.remedy))
    console.print(table)
