"""The coding agent's tasks: what is held out stays out, kinds are balanced, tests decide."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest

from text.sandbox import Sandbox
from text.tasks import KINDS, NUMBERS, Task, held_out_tasks, reward, train_tasks, write_repository

TASK = Task("sum", "total", "a", "b", wording=0, wrong="product", draw=1)


def named(task: Task) -> tuple[str, str, str, int]:
    return (task.function, task.first, task.kind, task.wording)


def test_no_held_out_combination_is_ever_trained_on() -> None:
    trained = {named(task) for seed in range(3) for task in itertools.islice(train_tasks(seed), 2000)}
    assert trained.isdisjoint(map(named, held_out_tasks()))


def test_every_run_of_eight_training_tasks_has_each_kind_once() -> None:
    tasks = list(itertools.islice(train_tasks(5), 80))
    for at in range(0, 80, len(KINDS)):
        assert {task.kind for task in tasks[at : at + len(KINDS)]} == set(KINDS)


def test_the_held_out_tasks_are_64_and_eight_of_each_kind() -> None:
    assert Counter(task.kind for task in held_out_tasks()) == dict.fromkeys(KINDS, 8)


def test_a_seed_has_its_own_tasks_and_always_the_same() -> None:
    first, again, other = (list(itertools.islice(train_tasks(seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_task_is_a_file_with_the_wrong_expression_and_its_specification_in_words() -> None:
    assert TASK.specification == "Fix solution.py: total(a, b) must return the sum of a and b."
    assert TASK.source("product") == "def total(a, b):\n    return a * b\n"


def test_encoding_a_task_and_back_gives_the_same() -> None:
    assert Task.decode(TASK.encode()) == TASK


@pytest.mark.parametrize("wrong", [kind for kind in KINDS if kind != "sum"])
def test_the_hidden_tests_refuse_every_other_kind(wrong: str, tmp_path: Path) -> None:
    write_repository(TASK, tmp_path)
    (tmp_path / "solution.py").write_text(TASK.source(wrong))
    with Sandbox(1) as sandbox:
        assert not sandbox.run(tmp_path, TASK.hidden_tests()).passed


def test_hidden_cases_are_not_the_visible_ones() -> None:
    visible, hidden = TASK.visible_tests(), TASK.hidden_tests()
    assert sum(str(pair) in visible for pair in NUMBERS) == 2
    assert not [pair for pair in NUMBERS if str(pair) in visible and str(pair) in hidden]


@pytest.mark.parametrize(
    ("solved", "turns", "clean", "expected"),
    [(True, 3, True, 1.1), (True, 5, True, 1.0), (True, 8, False, 0.75), (False, 2, True, 0.1), (False, 8, False, 0)],
)
def test_the_reward_is_solved_less_a_twentieth_a_turn_over_three_and_a_tenth_for_a_clean_end(
    solved: bool, turns: int, clean: bool, expected: float
) -> None:
    assert reward(solved=solved, turns=turns, clean=clean) == pytest.approx(expected)
