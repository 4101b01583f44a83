"""The small desk that the agent works on: its tasks, its rules, and how it looks, without a browser.

`page.html` is the real page. This module has the same rules in Python: it makes the tasks, draws the warm start's
screens, and stands in where there is no Chromium. A test holds both against each other, state by state and pixel by
pixel. Standard library only.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

SIDE = 4
"""Cells across and down. One cell is one placeholder token: patches of 14 px, 2 x 2 of them merged."""
CELL = 28
MARGIN = 4
CONTROL = 20
DOT = 2
SCREEN = SIDE * CELL
"""Pixels across and down."""
COLOURS = {
    "red": (235, 40, 40),
    "yellow": (245, 225, 40),
    "blue": (40, 70, 245),
    "white": (250, 250, 250),
}
CODES = ("4", "5", "6", "7", "8", "9")
GLYPHS = {
    "ok": (
        "0000000000", "0000000000", "0111010010", "0101010100", "0101011000",
        "0101010100", "0111010010", "0000000000", "0000000000", "0000000000",
    ),
    "cancel": (
        "1000000001", "0100000010", "0010000100", "0001001000", "0000110000",
        "0000110000", "0001001000", "0010000100", "0100000010", "1000000001",
    ),
    "field": (
        "1111111111", "1000000001", "1010000001", "1010000001", "1010000001",
        "1010000001", "1010000001", "1000000001", "1000000001", "1111111111",
    ),
    "saved": (
        "0000000000", "0000000011", "0000000110", "0000001100", "1000011000",
        "1100110000", "0111100000", "0011000000", "0000000000", "0000000000",
    ),
}  # fmt: skip
LOOKS = {
    "ok": ((220, 220, 220), (0, 0, 0)),
    "cancel": ((60, 60, 60), (250, 250, 250)),
    "field": ((250, 250, 250), (0, 0, 0)),
    "saved": ((20, 120, 40), (250, 250, 250)),
}
MENU, DIALOG, SAVED = 0, 1, 2
SUBGOALS = 2
ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Task:
    """What is asked: press the button of a colour, then confirm with OK or, if there is a code, by typing it."""

    seed: int
    """Of all that the page shows; a task of another seed looks different."""
    colour: str
    code: str
    """A digit to type; empty = press OK."""

    def encode(self) -> str:
        """As a string."""
        return f"{self.seed} {self.colour} {self.code}"

    @classmethod
    def decode(cls, text: str) -> Task:
        """From a string."""
        seed, colour, code = text.split(" ")
        return cls(int(seed), colour, code)

    def instruction(self) -> str:
        """In words, for the agent."""
        return f"Press {self.colour}, then type {self.code}." if self.code else f"Press {self.colour}, then OK."


def tasks(first_seed: int, count: int) -> list[Task]:
    """Tasks whose colours take turns, half of them with a code. The same numbers give the same tasks."""
    dice = Random(first_seed)
    names = list(COLOURS)
    colours = [names[at % len(names)] for at in range(count)]
    dice.shuffle(colours)
    return [Task(first_seed + at, colour, dice.choice(CODES) if at % 2 else "") for at, colour in enumerate(colours)]


def reward(stage: int) -> float:
    """Of the state that a page was left in: 0.5 for each subgoal that still holds."""
    return stage / SUBGOALS


def numbers(seed: int) -> Iterator[int]:
    """Mulberry32, as in the page: 32-bit numbers."""
    state = seed & 0xFFFFFFFF
    while True:
        state = (state + 0x6D2B79F5) & 0xFFFFFFFF
        mixed = ((state ^ (state >> 15)) * (state | 1)) & 0xFFFFFFFF
        mixed ^= (mixed + (((mixed ^ (mixed >> 7)) * (mixed | 61)) & 0xFFFFFFFF)) & 0xFFFFFFFF
        yield (mixed ^ (mixed >> 14)) & 0xFFFFFFFF


def shuffled(items: Sequence[ItemT], dice: Iterator[int]) -> list[ItemT]:
    """Fisher and Yates, as in the page."""
    every = list(items)
    for at in range(len(every) - 1, 0, -1):
        other = next(dice) % (at + 1)
        every[at], every[other] = every[other], every[at]
    return every


class Desk:
    """The page's rules."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.stage = MENU
        self.moves = 0

    def controls(self) -> dict[str, int]:
        """What is on the screen now, and the cell of each, counted by rows."""
        dice = numbers((self.task.seed * 1000003 + self.moves) & 0xFFFFFFFF)
        cells = shuffled(range(SIDE * SIDE), dice)
        if self.stage == MENU:
            names = list(COLOURS)
        elif self.stage == DIALOG:
            names = ["field"] if self.task.code else ["ok", "cancel"]
        else:
            names = ["saved"]
        return dict(zip(names, cells, strict=False))

    def click(self, column: int, row: int) -> None:
        """A click in the middle of a cell."""
        at = row * SIDE + column
        name = next((name for name, cell in self.controls().items() if cell == at), "")
        if self.stage == SAVED:
            self._move(MENU)
        elif self.stage == MENU:
            self._move(DIALOG if name == self.task.colour else MENU)
        else:
            self._move({"ok": SAVED, "cancel": MENU}.get(name, DIALOG))

    def type(self, text: str) -> None:
        """Text for the field, if there is one."""
        if text and self.stage == DIALOG and self.task.code:
            self._move(SAVED if text == self.task.code else DIALOG)

    def _move(self, stage: int) -> None:
        self.stage = stage
        self.moves += 1

    def pixels(self) -> bytes:
        """Red, green, blue of each pixel, by rows: `SCREEN * SCREEN * 3` bytes."""
        canvas = bytearray(_WALLPAPER)
        for name, cell in self.controls().items():
            left, top = cell % SIDE * CELL + MARGIN, cell // SIDE * CELL + MARGIN
            back, front = LOOKS.get(name) or (COLOURS[name], (0, 0, 0))
            _fill(canvas, left, top, CONTROL, back)
            for down, line in enumerate(GLYPHS.get(name, ())):
                for across, dot in enumerate(line):
                    if dot == "1":
                        _fill(canvas, left + DOT * across, top + DOT * down, DOT, front)
        return bytes(canvas)


def _fill(canvas: bytearray, left: int, top: int, side: int, colour: tuple[int, int, int]) -> None:
    line = bytes(colour) * side
    for y in range(top, top + side):
        start = (y * SCREEN + left) * 3
        canvas[start : start + len(line)] = line


def _wallpaper() -> bytes:
    canvas = bytearray(SCREEN * SCREEN * 3)
    for cell in range(SIDE * SIDE):
        column, row = cell % SIDE, cell // SIDE
        _fill(canvas, column * CELL, row * CELL, CELL, (30 + 60 * column, 30 + 60 * row, 100))
    return bytes(canvas)


_WALLPAPER = _wallpaper()


def png(pixels: bytes) -> bytes:
    """A screen as a PNG file."""
    stride = SCREEN * 3
    lines = b"".join(b"\0" + pixels[at : at + stride] for at in range(0, len(pixels), stride))
    header = struct.pack(">IIBBBBB", SCREEN, SCREEN, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )
