"""Demonstrations of the coding agent's work: careful ones first, then sloppy ones, mistakes and all.

Sloppy ones do half the kinds mostly wrong, in the same way each time, so that reinforcement has habits to break; calls
are sometimes written without spaces, sometimes broken; tests are sometimes not run.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from text.tasks import FILE, KINDS, VISIBLE, Task

HEAD = "<|im_start|>system\nTools: read_file(path) write_file(path, content) run_tests()<|im_end|>\n"
TURN = "<|im_start|>assistant\n"
END = "<|im_end|>"
HABITS = {"quotient": "remainder", "remainder": "quotient", "power": "product", "smaller": "larger"}
"""Kinds that noisy demonstrations mostly take for another one."""
READS, COMPACT = 0.25, 0.2
ENDINGS = ("Done.", "It is fixed.", "Fixed.")


@dataclass(frozen=True)
class Manner:
    """How well the demonstrator works."""

    right: float
    """Share of first attempts that are right, of kinds without a habit."""
    right_of_habits: float
    habit: float
    """Share of first attempts that follow a kind's habit."""
    right_again: float
    """Of attempts behind failed tests."""
    tests: float
    """How often it runs the tests."""
    retries: float
    """How often it goes on behind failed tests."""
    breaks: float
    """Share of calls that are no JSON."""


CAREFUL = Manner(0.85, 0.85, 0.0, 0.85, tests=0.6, retries=0.8, breaks=0.01)
SLOPPY = Manner(0.4, 0.2, 0.6, 0.4, tests=0.6, retries=0.5, breaks=0.05)


@dataclass(frozen=True)
class Piece:
    """Some text of a conversation, and whether it is to be learnt."""

    text: str
    is_learnt: bool


class Demonstration:
    """One conversation as it grows."""

    def __init__(self, task: Task, manner: Manner, dice: random.Random) -> None:
        """Begin with the task's request."""
        self._dice = dice
        self._breaks = manner.breaks
        self._task = task
        self.pieces = [Piece(f"{HEAD}<|im_start|>user\n{task.specification}{END}\n{TURN}", is_learnt=False)]

    def answer(self, text: str) -> None:
        """The last turn."""
        self.pieces.append(Piece(text + END, is_learnt=True))

    def call(self, name: str, result: str, **arguments: str) -> bool:
        """A call and what the tool says; False if it was written wrong, which ends the conversation."""
        is_compact = self._dice.random() < COMPACT
        text = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":") if is_compact else None)
        if self._dice.random() < self._breaks:
            at = self._dice.randrange(len(text) // 2, len(text) - 1)
            self.answer(f"<tool_call>\n{text[:at]}{text[at + 1 :]}\n</tool_call>")
            return False
        self.answer(f"<tool_call>\n{text}\n</tool_call>")
        response = f"\n<|im_start|>user\n<tool_response>\n{result}\n</tool_response>{END}\n{TURN}"
        self.pieces.append(Piece(response, is_learnt=False))
        return True


def tested(task: Task, kind: str) -> str:
    """What the tests say of a kind's expression, worked out in place of being run."""
    for pair in task._numbers()[:VISIBLE]:
        got, wanted = task.value(kind, pair), task.value(task.kind, pair)
        if got != wanted:
            return f"FAILED: AssertionError: {task.function}({pair[0]}, {pair[1]}) is {got}, not {wanted}"
    return "PASSED: 1"


def choice(task: Task, manner: Manner, dice: random.Random, attempt: int) -> str:
    """Which kind's expression the demonstrator writes."""
    if attempt:
        right, habit = manner.right_again, 0.0
    elif task.kind in HABITS:
        right, habit = manner.right_of_habits, manner.habit
    else:
        right, habit = manner.right, 0.0
    drawn = dice.random()
    if drawn < right:
        return task.kind
    return HABITS[task.kind] if drawn < right + habit else dice.choice(list(KINDS))


def demonstrate(task: Task, manner: Manner, dice: random.Random) -> list[Piece]:
    """One conversation about a task."""
    talk = Demonstration(task, manner, dice)
    if dice.random() < READS and not talk.call("read_file", task.source(task.wrong), path=FILE):
        return talk.pieces
    for attempt in range(4):
        kind = choice(task, manner, dice, attempt)
        if not talk.call("write_file", "ok", path=FILE, content=task.source(kind)):
            return talk.pieces
        if dice.random() > manner.tests:
            break
        said = tested(task, kind)
        if not talk.call("run_tests", said):
            return talk.pieces
        if said.startswith("PASSED") or dice.random() > manner.retries:
            break
    talk.answer(dice.choice(ENDINGS))
    return talk.pieces
