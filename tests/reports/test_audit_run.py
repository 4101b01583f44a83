"""When a hypothesis is believed."""

from __future__ import annotations

from typing import Any

from turnstile.reports.audit_figures import Figures, Limits
from turnstile.reports.audit_run import Asked, is_explained_by, own_rows
from turnstile.reports.audit_subject import Drawn
from turnstile.tokens import IdRun

WRONG = Figures(tokens=64, mean_abs=2.6, max_abs=9.8, k3=32.0)
NOISE = Figures(tokens=64, mean_abs=0.04, max_abs=0.2, k3=1.5e-3)
EXACT = Figures(tokens=63, mean_abs=1e-6, max_abs=1e-5, k3=1e-12)


def test_a_fault_is_explained_by_what_leaves_noise_or_nothing() -> None:
    assert is_explained_by(NOISE, WRONG, Limits())
    assert is_explained_by(EXACT, WRONG, Limits())
    assert not is_explained_by(WRONG, WRONG, Limits())


def test_noise_is_explained_only_by_what_leaves_nothing() -> None:
    assert not is_explained_by(NOISE, NOISE, Limits())
    assert is_explained_by(EXACT, NOISE, Limits())


def test_a_handful_of_tokens_proves_nothing() -> None:
    assert not is_explained_by(Figures(tokens=3, mean_abs=0.0), WRONG, Limits())


def test_a_token_is_asked_of_the_row_before_it_and_the_very_first_of_none() -> None:
    def drawn(at: int) -> Any:
        return Drawn(at=at, logprob=-1.0, temperature=0.7, call=0)

    assert own_rows([drawn(0), drawn(2)], IdRun.of([5, 6, 7])) == [Asked(1, 7, 0.7)]
