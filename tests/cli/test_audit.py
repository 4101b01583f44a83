"""`turnstile audit` as far as it comes without a model; with one it is run in tests/trainers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnstile.cli.audit import _told
from turnstile.errors import CallerError
from turnstile.reports.audit import SequenceAudit
from turnstile.reports.audit_figures import Figures, Verdict
from turnstile.reports.audit_run import FaultKind, Finding


@pytest.fixture
def exported(run: Callable[..., Any], store: Path, tmp_path: Path) -> Path:
    out = tmp_path / "all.jsonl"
    run("export", store, "-o", out)
    return out


def test_a_model_that_is_not_there_is_refused_before_anything_is_computed(
    run: Callable[..., Any], exported: Path, tmp_path: Path
) -> None:
    refused = run("audit", exported, "--model", tmp_path / "nowhere").exception
    assert isinstance(refused, CallerError)
    assert refused.code == "audit_model_unreadable"


def test_a_served_name_that_the_file_does_not_have_is_refused(run: Callable[..., Any], exported: Path) -> None:
    told = run("audit", exported, "--model", "x", "--served", "nobody").exception
    assert str(told) == f"{exported} has no sequence of a model served as `nobody`. Give another file."


def test_options_that_contradict_each_other_are_refused(run: Callable[..., Any], exported: Path) -> None:
    told = run("audit", exported, "--model", "x", "--float32", "--calibrate", exported).exception
    assert "contradict" in str(told)


def test_a_fault_is_told_with_its_figures_before_and_after() -> None:
    before = Figures(tokens=64, mean_abs=2.6, max_abs=9.8, mean=0.01, beyond=0.98, k3=32.0)
    after = Figures(tokens=63, mean_abs=1e-6, max_abs=1e-5)
    finding = Finding(FaultKind.TOO_LATE, "The log-probabilities are shifted", figures=after)
    told = _told(
        SequenceAudit(
            "r", 2, "r/0", Verdict.FAULT, before, finding, not_compared=("a penalty stands inside the numbers",)
        )
    )
    assert told.splitlines() == [
        "r/0 attempt 2: fault, 64 tokens, |d| mean 2.6 max 9.8, d mean +0.01, beyond 0.05 98%, k3 32",
        "    numbers_too_late: The log-probabilities are shifted",
        "    then left: 63 tokens, |d| mean 1e-06 max 1e-05, d mean +0, beyond 0.05 0%, k3 0",
        "    not compared: a penalty stands inside the numbers",
    ]
