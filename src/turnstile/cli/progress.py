"""What commands show people: progress on long work, on stderr and only where somebody looks, tables and counts."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn

from turnstile.engines.smollm import Progress as Download
from turnstile.server.assembly import ShowProgress

PIPED_WIDTH = 140
"""Columns of a table that no terminal shows."""


def wide_console() -> Console:
    """A console for tables: as wide as the terminal, and wide enough where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


def counted(number: int, thing: str) -> str:
    """A number of things in words: `1 error`, `2 errors`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar on stderr that leaves nothing behind, and draws nothing where stderr is no terminal."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextlib.contextmanager
def download_bar() -> Generator[ShowProgress]:
    """A bar that appears with the first byte of a download and goes when it is done."""
    bar = progress_bar(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    tasks: dict[str, TaskID] = {}

    def show(download: Download) -> None:
        # Started only for as long as there is something to show: a bar has a thread that redraws it.
        bar.start()
        if download.stage not in tasks:
            tasks[download.stage] = bar.add_task(f"{download.stage} the model", total=download.total_bytes)
        bar.update(tasks[download.stage], completed=download.done_bytes, total=download.total_bytes)
        if bar.finished:
            bar.stop()

    try:
        yield show
    finally:
        bar.stop()
