"""Small repositories: a file with one wrong function, what it should do in words, and tests.

`train_tasks` and `held_out_tasks` never share a combination of function, names and wording.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

HELD_OUT = 64
FILE = "solution.py"
TEST_FILE = "test_solution.py"
VISIBLE = 2
HIDDEN = 6


@dataclass(frozen=True)
class Kind:
    """What a function is to compute, `{a}` and `{b}` standing for its arguments."""

    expression: str
    wordings: tuple[str, ...]


KINDS = {
    "sum": Kind("{a} + {b}", ("the sum of {a} and {b}", "{a} plus {b}", "{a} and {b} added")),
    "difference": Kind("{a} - {b}", ("{a} minus {b}", "{a} less {b}", "{a} without {b}")),
    "product": Kind("{a} * {b}", ("the product of {a} and {b}", "{a} times {b}", "{a} by {b} multiplied")),
    "quotient": Kind(
        "{a} // {b}", ("how often {b} fits into {a}", "the whole part of {a} by {b}", "{a} shared by {b}")
    ),
    "remainder": Kind("{a} % {b}", ("the rest of {a} by {b}", "{a} modulo {b}", "what {b} leaves of {a}")),
    "power": Kind("{a} ** {b}", ("{a} to the power of {b}", "{a} raised to {b}", "the power {b} of {a}")),
    "larger": Kind(
        "max({a}, {b})", ("the larger of {a} and {b}", "the maximum of {a} and {b}", "the most of {a} and {b}")
    ),
    "smaller": Kind(
        "min({a}, {b})", ("the smaller of {a} and {b}", "the minimum of {a} and {b}", "the least of {a} and {b}")
    ),
}
FUNCTIONS = ("total", "combine", "solve", "result", "score")
NAMES = (("a", "b"), ("x", "y"), ("m", "n"), ("p", "q"))
NUMBERS = ((7, 2), (9, 4), (8, 3), (11, 4), (9, 2), (13, 5), (10, 3), (5, 3), (12, 5), (2, 3), (3, 7))


@dataclass(frozen=True)
class Task:
    """One repository to be put right."""

    kind: str
    function: str
    first: str
    second: str
    wording: int
    wrong: str
    """The kind whose expression stands in the file."""
    draw: int
    """Chooses the numbers of the tests."""

    def expression(self, kind: str) -> str:
        """The expression of a kind in this task's names."""
        return KINDS[kind].expression.format(a=self.first, b=self.second)

    @property
    def specification(self) -> str:
        """What is asked of the agent."""
        words = KINDS[self.kind].wordings[self.wording].format(a=self.first, b=self.second)
        return f"Fix {FILE}: {self.function}({self.first}, {self.second}) must return {words}."

    def source(self, kind: str) -> str:
        """The file with the expression of a kind."""
        return f"def {self.function}({self.first}, {self.second}):\n    return {self.expression(kind)}\n"

    def visible_tests(self) -> str:
        """The test file that lies in the repository."""
        return self._tests(self._numbers()[:VISIBLE])

    def hidden_tests(self) -> str:
        """The test file that decides; it never lies where the agent could read it."""
        return self._tests(self._numbers()[VISIBLE : VISIBLE + HIDDEN])

    def _numbers(self) -> list[tuple[int, int]]:
        numbers = list(NUMBERS)
        random.Random(self.draw).shuffle(numbers)
        return numbers

    def _tests(self, numbers: list[tuple[int, int]]) -> str:
        cases = [(pair, self.value(self.kind, pair)) for pair in numbers]
        return (
            f"import solution\n\nCASES = {cases}\n\n\n"
            f"def test_{self.function}():\n    for given, wanted in CASES:\n"
            f"        got = solution.{self.function}(*given)\n"
            f'        assert got == wanted, f"{self.function}{{given}} is {{got}}, not {{wanted}}"\n'
        )

    def value(self, kind: str, pair: tuple[int, int]) -> int:
        """What the expression of a kind gives for two numbers."""
        return int(eval(self.expression(kind), {self.first: pair[0], self.second: pair[1]}))

    def encode(self) -> str:
        """For a data set's column."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> Task:
        """Back from `encode`."""
        return Task(**json.loads(text))


def is_held_out(function: str, first: str, kind: str, wording: int) -> bool:
    """Whether a combination belongs to evaluation: one in six, by a hash that no run can change."""
    name = f"{function} {first} {kind} {wording}".encode()
    return hashlib.sha256(name).digest()[0] % 6 == 0


def _draw(dice: random.Random, kind: str, *, held_out: bool) -> Task:
    while True:
        function, (first, second), wording = dice.choice(FUNCTIONS), dice.choice(NAMES), dice.randrange(3)
        if is_held_out(function, first, kind, wording) == held_out:
            wrong = dice.choice([each for each in KINDS if each != kind])
            return Task(kind, function, first, second, wording, wrong, dice.randrange(10**6))


def train_tasks(seed: int) -> Iterator[Task]:
    """Tasks without an end; each run of `len(KINDS)` has every kind once."""
    dice = random.Random(f"train {seed}")
    while True:
        kinds = list(KINDS)
        dice.shuffle(kinds)
        for kind in kinds:
            yield _draw(dice, kind, held_out=False)


def held_out_tasks() -> list[Task]:
    """The same 64 for every run: eight of each kind."""
    dice = random.Random("held out")
    return [_draw(dice, kind, held_out=True) for kind in list(KINDS) * (HELD_OUT // len(KINDS))]


def write_repository(task: Task, folder: Path) -> None:
    """Lay the task's files into a folder."""
    (folder / FILE).write_text(task.source(task.wrong), encoding="utf-8")
    (folder / TEST_FILE).write_text(task.visible_tests(), encoding="utf-8")


FREE_TURNS = 3
TURN_COST = 0.05
CLEAN_END = 0.1


def reward(*, solved: bool, turns: int, clean: bool) -> float:
    """Hidden tests pass x (1 - 0.05 for each turn over three) + 0.1 for a clean end."""
    return float(solved) * (1.0 - TURN_COST * max(0, turns - FREE_TURNS)) + CLEAN_END * float(clean)
