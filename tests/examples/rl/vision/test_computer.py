"""Which computer an agent gets, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from vision import chromium
from vision.computer import open_computers
from vision.screen import Desk, Task

TASK = Task(3, "white", "")


def test_drawn_computers_say_that_no_browser_drew_them(read_png: Callable[[bytes], bytes]) -> None:
    computers, said = open_computers("drawn", 1)
    with computers.computer(TASK) as computer:
        shot = computer.screenshot()
    computers.close()
    assert said == "screenshots: DRAWN WITHOUT A BROWSER, as asked"
    assert read_png(shot) == Desk(TASK).pixels()


def test_a_machine_without_chromium_draws_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    computers, said = open_computers("auto", 1)
    computers.close()
    assert said == ("screenshots: DRAWN WITHOUT A BROWSER, no Chromium is installed (Debian: chromium-headless-shell)")


def test_chromium_that_is_asked_for_by_name_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="apt-get install chromium-headless-shell"):
        open_computers("chromium", 1)


def test_real_pages_are_said_to_be_real() -> None:
    path = chromium.program()
    if path is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium-headless-shell)")
    computers, said = open_computers("auto", 1)
    with computers.computer(TASK) as computer:
        stage = computer.stage()
    computers.close()
    assert (said, stage) == (f"screenshots: real pages in {path}", 0)
