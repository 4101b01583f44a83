"""The desk's rules and looks, without a browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice

import pytest

from vision.screen import (
    CELL,
    COLOURS,
    DIALOG,
    MARGIN,
    MENU,
    SAVED,
    SCREEN,
    SIDE,
    Desk,
    Task,
    numbers,
    png,
    reward,
    tasks,
)

CONFIRM = Task(7, "blue", "")
TYPE = Task(8, "red", "5")


def press(desk: Desk, name: str) -> None:
    cell = desk.controls()[name]
    desk.click(cell % SIDE, cell // SIDE)


def empty_cell(desk: Desk) -> tuple[int, int]:
    cell = next(each for each in range(SIDE * SIDE) if each not in desk.controls().values())
    return cell % SIDE, cell // SIDE


def test_the_button_of_the_asked_colour_and_then_ok_is_all_that_is_wanted() -> None:
    desk = Desk(CONFIRM)
    seen = [reward(desk.stage)]
    press(desk, "blue")
    seen.append(reward(desk.stage))
    press(desk, "ok")
    seen.append(reward(desk.stage))
    assert (seen, desk.stage) == ([0.0, 0.5, 1.0], SAVED)


def test_a_code_is_typed_into_a_field() -> None:
    desk = Desk(TYPE)
    press(desk, "red")
    assert set(desk.controls()) == {"field"}
    desk.type("6")
    assert (desk.stage, desk.moves) == (DIALOG, 2)
    desk.type("5")
    assert (desk.stage, desk.moves) == (SAVED, 3)


def test_typing_where_no_field_is_does_nothing() -> None:
    confirm, menu = Desk(CONFIRM), Desk(TYPE)
    press(confirm, "blue")
    before = confirm.controls()
    confirm.type("5")
    menu.type("5")
    assert (confirm.stage, confirm.controls(), menu.stage, menu.moves) == (DIALOG, before, MENU, 0)


@pytest.mark.parametrize("colour", [each for each in COLOURS if each != CONFIRM.colour])
def test_a_button_of_another_colour_leads_nowhere_and_moves_everything(colour: str) -> None:
    desk = Desk(CONFIRM)
    before = desk.controls()
    press(desk, colour)
    assert desk.stage == MENU
    assert desk.controls() != before


def test_a_miss_keeps_the_stage() -> None:
    desk = Desk(CONFIRM)
    desk.click(*empty_cell(desk))
    press(desk, "blue")
    desk.click(*empty_cell(desk))
    assert (desk.stage, desk.moves) == (DIALOG, 3)


def test_cancel_goes_back_and_costs_the_first_subgoal() -> None:
    desk = Desk(CONFIRM)
    press(desk, "blue")
    press(desk, "cancel")
    assert (desk.stage, reward(desk.stage)) == (MENU, 0.0)


def test_a_click_on_a_page_that_has_saved_begins_anew() -> None:
    desk = Desk(CONFIRM)
    press(desk, "blue")
    press(desk, "ok")
    press(desk, "saved")
    assert (desk.stage, reward(desk.stage)) == (MENU, 0.0)


def test_each_cell_tells_its_place_beside_any_control() -> None:
    desk = Desk(CONFIRM)
    pixels = desk.pixels()
    assert len(pixels) == SCREEN * SCREEN * 3
    for cell in range(SIDE * SIDE):
        column, row = cell % SIDE, cell // SIDE
        corner = (row * CELL * SCREEN + column * CELL) * 3
        middle = ((row * CELL + MARGIN) * SCREEN + column * CELL + MARGIN) * 3
        wall = (30 + 60 * column, 30 + 60 * row, 100)
        name = next((name for name, at in desk.controls().items() if at == cell), None)
        assert tuple(pixels[corner : corner + 3]) == wall
        assert tuple(pixels[middle : middle + 3]) == (wall if name is None else COLOURS[name])


def test_a_screen_as_a_png_has_its_pixels(read_png: Callable[[bytes], bytes]) -> None:
    desk = Desk(CONFIRM)
    press(desk, "blue")
    assert read_png(png(desk.pixels())) == desk.pixels()


def test_random_numbers_are_those_of_mulberry32() -> None:
    # By the published JavaScript function, in Node.js, for seed 1.
    assert list(islice(numbers(1), 4)) == [2693262067, 11749833, 2265367787, 4213581821]


def test_tasks_are_the_same_for_the_same_number_and_balanced() -> None:
    made = tasks(100, 96)
    assert made == tasks(100, 96)
    assert Counter(each.colour for each in made) == dict.fromkeys(COLOURS, 24)
    assert sum(bool(each.code) for each in made) == 48
    assert len({each.seed for each in made}) == 96


@pytest.mark.parametrize("task", [CONFIRM, TYPE])
def test_a_task_is_read_from_its_own_text(task: Task) -> None:
    assert Task.decode(task.encode()) == task


def test_what_is_asked_is_said_in_words() -> None:
    assert [each.instruction() for each in (CONFIRM, TYPE)] == ["Press blue, then OK.", "Press red, then type 5."]
