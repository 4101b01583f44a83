"""Noisy demonstrations of the coding agent's work: what the warm start learns, mistakes and all.

Half the kinds are mostly done wrong, in the same way each time, so that reinforcement has habits to break; calls are
sometimes written without spaces, sometimes broken; tests are sometimes not run.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from text.tasks import FILE, KINDS, VISIBLE, Task

HEAD = "<|im_start|>system\nTools: read_file(path) write_file(path, content) run_tests()<|im_end|>\n"
TURN = "<|im_start|>assistant\n"
END = "<|im_end|>"
RIGHT = {"sum": 0.55, "difference": 0.5, "product": 0.45, "larger": 0.4}
RIGHT_OF_OTHERS = 0.3
HABIT = 0.5
HABITS = {"quotient": "remainder", "remainder": "quotient", "power": "product", "smaller": "larger"}
READS, TESTS, RETRIES, BREAKS, COMPACT = 0.25, 0.6, 0.5, 0.05, 0.2
ENDINGS = ("Done.", "It is fixed.", "Fixed.")


@dataclass(frozen=True)
class Piece:
    """Some text of a conversation, and whether it is to be learnt."""

    text: str
    is_learnt: bool


class Demonstration:
    """One conversation as it grows."""

    def __init__(self, task: Task, dice: random.Random) -> None:
        """Begin with the task's request."""
        self._dice = dice
        self._task = task
        self.pieces = [Piece(f"{HEAD}<|im_start|>user\n{task.specification}{END}\n{TURN}", is_learnt=False)]

    def answer(self, text: str) -> None:
        """The last turn."""
        self.pieces.append(Piece(text + END, is_learnt=True))

    def call(self, name: str, result: str, **arguments: str) -> bool:
        """A call and what the tool says; False if it was written wrong, which ends the conversation."""
        is_compact = self._dice.random() < COMPACT
        text = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":") if is_compact else None)
        if self._dice.random() < BREAKS:
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


def choice(task: Task, dice: random.Random, *, is_retry: bool) -> str:
    """Which kind's expression the demonstrator writes."""
    if dice.random() < (0.4 if is_retry else RIGHT.get(task.kind, RIGHT_OF_OTHERS)):
        return task.kind
    if not is_retry and task.kind in HABITS and dice.random() < HABIT / (1 - RIGHT_OF_OTHERS):
        return HABITS[task.kind]
    return dice.choice(list(KINDS))


def demonstrate(task: Task, dice: random.Random) -> list[Piece]:
    """One noisy conversation about a task."""
    talk = Demonstration(task, dice)
    if dice.random() < READS and not talk.call("read_file", task.source(task.wrong), path=FILE):
        return talk.pieces
    for attempt in range(4):
        kind = choice(task, dice, is_retry=attempt > 0)
        if not talk.call("write_file", "ok", path=FILE, content=task.source(kind)):
            return talk.pieces
        if dice.random() > TESTS:
            break
        said = tested(task, kind)
        if not talk.call("run_tests", said):
            return talk.pieces
        if said.startswith("PASSED") or dice.random() > RETRIES:
            break
    talk.answer(dice.choice(ENDINGS))
    return talk.pieces
