"""What the warm start learns from: how to see, and then a behaviour that is mostly wrong.

Reinforcement of a model this small sharpens and re-weighs what is there; it does not teach to see. So the first part
shows the right action on single screens until every button is found, and the second part spoils the behaviour, not the
eyes: episodes by a teacher who is right in a third of the turns, has fixed wrong habits, and is random else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from vision.screen import CODES, COLOURS, DIALOG, MENU, SAVED, SIDE, Desk, Task
from vision.talk import call, following, opening

RIGHT, HABIT = 0.38, 0.40
"""Shares of turns; the rest is random."""
MAX_TURNS = 4
OK = "ok"


@dataclass
class Demonstration:
    """One conversation: texts in turns, prompts first, and the screen that each prompt ends with."""

    texts: list[str] = field(default_factory=list)
    screens: list[bytes] = field(default_factory=list)
    """Red, green, blue of each pixel."""


@dataclass(frozen=True)
class Action:
    """One tool call."""

    name: str
    cell: int = 0
    text: str = ""

    def spelled(self) -> str:
        """As the model writes it."""
        if self.name == "click":
            return call("click", x=self.cell % SIDE, y=self.cell // SIDE)
        return call("type", text=self.text) if self.name == "type" else call("done")

    def done_to(self, desk: Desk) -> None:
        """Act."""
        if self.name == "click":
            desk.click(self.cell % SIDE, self.cell // SIDE)
        elif self.name == "type":
            desk.type(self.text)


def right(desk: Desk) -> Action:
    """What leads on."""
    if desk.stage == SAVED:
        return Action("done")
    if desk.stage == DIALOG and desk.task.code:
        return Action("type", text=desk.task.code)
    return Action("click", desk.controls()[desk.task.colour if desk.stage == MENU else "ok"])


def habit(desk: Desk) -> Action:
    """What is wrong in the same way each time: the colour after the one that was asked for, Cancel, the next digit."""
    shown = desk.controls()
    if desk.stage == MENU:
        names = list(COLOURS)
        first = names.index(desk.task.colour) + 1
        return Action("click", next(shown[name] for name in names[first:] + names[:first] if name in shown))
    if desk.stage == DIALOG and desk.task.code:
        return Action("type", text=CODES[(CODES.index(desk.task.code) + 1) % len(CODES)])
    return Action("click", shown["cancel" if desk.stage == DIALOG else "saved"])


def noise(dice: random.Random) -> Action:
    """Anything."""
    name = dice.choices(("click", "type", "done"), (0.7, 0.2, 0.1))[0]
    return Action(name, dice.randrange(SIDE * SIDE), dice.choice(CODES))


def any_task(dice: random.Random) -> Task:
    """A task for the warm start; its screens are none of those of training or evaluation, whose seeds are below."""
    seed = dice.randrange(1 << 29, 1 << 30)
    return Task(seed, dice.choice(list(COLOURS)), dice.choice(CODES) if dice.random() < 0.5 else "")


def single(dice: random.Random) -> Demonstration:
    """One screen of any stage, and the right action on it."""
    desk = Desk(any_task(dice))
    desk.stage, desk.moves = dice.choices((MENU, DIALOG, SAVED), (0.6, 0.3, 0.1))[0], dice.randrange(4)
    return Demonstration([opening(desk.task.instruction()), right(desk).spelled()], [desk.pixels()])


def episode(dice: random.Random, right_share: float, habit_share: float) -> Demonstration:
    """Several turns on one page."""
    desk = Desk(any_task(dice))
    made = Demonstration([opening(desk.task.instruction())], [desk.pixels()])
    for turn in range(MAX_TURNS):
        rolled = dice.random()
        if rolled < right_share:
            action = right(desk)
        elif rolled < right_share + habit_share:
            action = habit(desk)
        else:
            action = noise(dice)
        made.texts.append(action.spelled())
        action.done_to(desk)
        if action.name == "done" or turn == MAX_TURNS - 1:
            return made
        made.texts.append(following(OK))
        made.screens.append(desk.pixels())
    return made
