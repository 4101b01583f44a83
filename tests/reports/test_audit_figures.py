"""Figures of differences, and what they say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.reports.audit_figures import Figures, Limits, Verdict, figures_of, together

DIFFERENCES = st.lists(st.floats(-20, 20), max_size=30)


def test_the_figures_are_means_over_tokens() -> None:
    found = figures_of([0.1, -0.1, 0.0, 0.2])
    assert found.tokens == 4
    assert found.mean_abs == pytest.approx(0.1)
    assert (found.max_abs, found.beyond) == (0.2, 0.75)
    assert found.mean == pytest.approx(0.05)
    # By hand: e^0.1 - 1.1 = 0.0051709, e^-0.1 - 0.9 = 0.0048374, 0, e^0.2 - 1.2 = 0.0214028.
    assert found.k3 == pytest.approx((0.0051709 + 0.0048374 + 0.0214028) / 4, abs=1e-7)


def test_an_infinite_difference_counts_as_80() -> None:
    assert figures_of([-math.inf]).max_abs == 80.0


@given(st.lists(DIFFERENCES, max_size=5))
def test_figures_of_parts_make_the_figures_of_the_whole(parts: list[list[float]]) -> None:
    whole, summed = figures_of(each for part in parts for each in part), together(map(figures_of, parts))
    for name in Figures.__struct_fields__:
        assert getattr(summed, name) == pytest.approx(getattr(whole, name))


@given(DIFFERENCES)
def test_differences_of_both_signs_do_not_cancel_in_k3(differences: list[float]) -> None:
    assert figures_of(differences).k3 >= -1e-12


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        (Figures(), Verdict.NOT_COMPARED),
        (Figures(tokens=64, mean_abs=1e-5, max_abs=1e-4, k3=3e-9), Verdict.EXACT),
        (Figures(tokens=64, mean_abs=1e-5, max_abs=2e-3), Verdict.ENGINE_NOISE),
        # Measured: bfloat16 against float32, and Q4_1 in llama.cpp, of one model of 135 million weights.
        (Figures(tokens=64, mean_abs=0.032, max_abs=0.25, mean=1e-3, k3=1.4e-3), Verdict.ENGINE_NOISE),
        (Figures(tokens=263, mean_abs=0.054, max_abs=0.38, mean=3e-3, k3=4.1e-3), Verdict.ENGINE_NOISE),
        (Figures(tokens=64, mean_abs=2.6, max_abs=9.8, mean=0.0, k3=32.0), Verdict.FAULT),
        (Figures(tokens=4000, mean_abs=0.05, max_abs=0.3, mean=0.03, k3=2e-3), Verdict.FAULT),
    ],
)
def test_the_verdict(figures: Figures, verdict: Verdict) -> None:
    assert figures.verdict(Limits()) is verdict


def test_few_tokens_may_stray_farther_than_many() -> None:
    strayed = Figures(tokens=4, mean_abs=0.09, max_abs=0.15, mean=0.05, k3=6e-3)
    assert strayed.verdict(Limits()) is Verdict.ENGINE_NOISE
    assert Figures(tokens=4000, mean_abs=0.09, max_abs=0.15, mean=0.05, k3=6e-3).verdict(Limits()) is Verdict.FAULT


def test_without_noise_what_is_not_exact_is_a_fault() -> None:
    limits = Limits().without_noise()
    assert Figures(tokens=9, mean_abs=1e-5, max_abs=1e-4).verdict(limits) is Verdict.EXACT
    assert Figures(tokens=9, mean_abs=1e-3, max_abs=2e-3, mean=1e-3).verdict(limits) is Verdict.FAULT


def test_measured_limits_are_twice_what_was_measured() -> None:
    limits = Limits.twice(Figures(tokens=100, mean_abs=0.1, max_abs=0.5, mean=-0.01, k3=0.01))
    assert (limits.mean_abs, limits.mean, limits.k3) == (0.2, 0.02, 0.02)
