"""A run's lines: kept, cut behind a checkpoint, read again, summed up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loop.metrics import Metrics, read_metrics
from loop.results import put, summarise, table

STEP: dict[str, Any] = {
    "reward": 0.5,
    "difference_max": 2e-5,
    "exported_tokens": 100,
    "trained_tokens": 100,
    "forks": 0,
    "rollouts": 8,
    "differing": 2,
    "sampled": 110,
    "wrong": 30,
    "wall_s": 30.0,
}


def run_of(folder: Path, steps: int, resumed_at: int | None = None, first: int = 0) -> None:
    with Metrics(folder, "a run", 10, resumed_at) as metrics:
        for step in range(first, steps):
            metrics.say("evaluation", step, {"score": step / 10, "greedy_score": 0.5, "wall_s": 1.0})
            metrics.say("step", step + 1, STEP)


def places(folder: Path) -> list[tuple[str, int]]:
    return [(line["kind"], line["step"]) for line in read_metrics(folder)]


def test_a_run_that_goes_on_says_each_step_once(tmp_path: Path) -> None:
    run_of(tmp_path, 5)
    run_of(tmp_path, 6, resumed_at=3, first=3)
    expected = [each for step in range(6) for each in (("evaluation", step), ("step", step + 1))]
    assert places(tmp_path) == expected


def test_the_line_that_a_run_was_killed_in_is_dropped(tmp_path: Path) -> None:
    run_of(tmp_path, 2)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "evaluation", "st')
    run_of(tmp_path, 3, resumed_at=2, first=2)
    assert places(tmp_path)[-2:] == [("evaluation", 2), ("step", 3)]


def test_a_new_run_begins_a_new_file(tmp_path: Path) -> None:
    run_of(tmp_path, 5)
    run_of(tmp_path, 1)
    assert places(tmp_path) == [("evaluation", 0), ("step", 1)]


def test_a_line_is_json_with_all_its_figures(tmp_path: Path) -> None:
    run_of(tmp_path, 1)
    line = (tmp_path / "metrics.jsonl").read_text().splitlines()[1]
    assert json.loads(line) == {"kind": "step", "step": 1, **STEP}


def test_a_summary_compares_the_first_ten_evaluations_with_the_last_ten(tmp_path: Path) -> None:
    run_of(tmp_path, 20)
    summary = summarise(tmp_path)
    assert (summary.early, summary.late) == (pytest.approx(0.45), pytest.approx(1.45))
    assert (summary.first, summary.last, summary.evaluations, summary.steps) == (0.0, 1.9, 20, 20)
    assert (summary.exported, summary.counted, summary.differing, summary.rollouts) == (2000, 2000, 40, 160)


def test_ends_never_overlap_in_a_short_run(tmp_path: Path) -> None:
    run_of(tmp_path, 4)
    summary = summarise(tmp_path)
    assert (summary.early, summary.late) == (pytest.approx(0.05), pytest.approx(0.25))


def test_a_page_is_rewritten_between_its_marks_only(tmp_path: Path) -> None:
    run_of(tmp_path, 4)
    text = table({"exact": [summarise(tmp_path)]})
    page = put("Before.\n<!-- text:begin -->\nold\n<!-- text:end -->\nBehind.\n", "text", text)
    assert page == f"Before.\n<!-- text:begin -->\n{text}\n<!-- text:end -->\nBehind.\n"
    assert "| 2.0e-05 | 400 | 400 | 0 | 8 of 32 (25%) | 120 of 440 (27%) | 0 |" in page


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(SystemExit, match="text:begin"):
        put("nothing", "text", "")
