"""The real page in Chromium, held against the rules that are written in Python."""

from __future__ import annotations

import random
from collections.abc import Callable

from vision.chromium import Tabs
from vision.screen import SIDE, Desk, Task, tasks


def test_the_page_looks_and_behaves_like_the_desk_that_is_drawn_without_it(
    tabs: Tabs, read_png: Callable[[bytes], bytes]
) -> None:
    dice = random.Random(0)
    for task in tasks(1000, 8):
        desk = Desk(task)
        with tabs.computer(task) as tab:
            for _ in range(6):
                assert read_png(tab.screenshot()) == desk.pixels()
                assert tab.stage() == desk.stage
                if dice.random() < 0.3:
                    text = dice.choice((task.code, "1", ""))
                    tab.type(text)
                    desk.type(text)
                else:
                    cell = dice.choice([*desk.controls().values()] * 3 + list(range(SIDE * SIDE)))
                    tab.click(cell % SIDE, cell // SIDE)
                    desk.click(cell % SIDE, cell // SIDE)


def test_a_tab_is_as_new_for_the_next_task(tabs: Tabs, read_png: Callable[[bytes], bytes]) -> None:
    task = Task(5, "yellow", "")
    for _ in range(3):
        with tabs.computer(task) as tab:
            desk = Desk(task)
            assert (read_png(tab.screenshot()), tab.stage()) == (desk.pixels(), 0)
            cell = desk.controls()["yellow"]
            tab.click(cell % SIDE, cell // SIDE)
            assert tab.stage() == 1
