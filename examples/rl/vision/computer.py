"""What an agent works on: a page in Chromium, or, where that is missing, the same page drawn without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from vision import chromium
from vision.screen import Desk, Task, png


class Computer(Protocol):
    """One page. Places are cells, columns and rows from 0."""

    def screenshot(self) -> bytes: ...

    def click(self, column: int, row: int) -> None: ...

    def type(self, text: str) -> None: ...

    def stage(self) -> int: ...


class Computers(Protocol):
    """Pages for many agents."""

    def computer(self, task: Task) -> AbstractContextManager[Computer]: ...

    def close(self) -> None: ...


class Drawn:
    """The page's rules and looks without a browser."""

    def __init__(self, task: Task) -> None:
        self._desk = Desk(task)

    def screenshot(self) -> bytes:
        return png(self._desk.pixels())

    def click(self, column: int, row: int) -> None:
        self._desk.click(column, row)

    def type(self, text: str) -> None:
        self._desk.type(text)

    def stage(self) -> int:
        return self._desk.stage


class DrawnComputers:
    """As many as are asked for."""

    @contextmanager
    def computer(self, task: Task) -> Iterator[Drawn]:
        yield Drawn(task)

    def close(self) -> None:
        pass


def open_computers(kind: str, count: int) -> tuple[Computers, str]:
    """Computers, and a line that says which.

    Args:
        kind: `auto`, `chromium` or `drawn`.
        count: pages that are used at once, in Chromium.

    Raises: SystemExit if Chromium is asked for by name and is not there.
    """
    path = None if kind == "drawn" else chromium.program()
    if path is not None:
        return chromium.Tabs(path, count), f"screenshots: real pages in {path}"
    if kind == "chromium":
        raise SystemExit("No Chromium is installed. On Debian: apt-get install chromium-headless-shell")
    why = "as asked" if kind == "drawn" else "no Chromium is installed (Debian: chromium-headless-shell)"
    return DrawnComputers(), f"screenshots: DRAWN WITHOUT A BROWSER, {why}"
