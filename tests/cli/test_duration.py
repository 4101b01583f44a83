"""Lengths of time as people write them."""

from __future__ import annotations

import pytest

from turnstile.cli.duration import duration_s
from turnstile.errors import CallerError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("15m", 900.0), ("12h", 43_200.0), ("7d", 604_800.0), ("0.5w", 302_400.0), ("0", 0)],
)
def test_a_number_and_a_unit_are_seconds(text: str, seconds: float) -> None:
    assert duration_s(text, "--keep-for") == seconds


@pytest.mark.parametrize(
    "text", ["", "7", "90", "00", "d", "-1d", "7 days", "1e9", "7D", "7d1h", "99999999999", "5001w"]
)
def test_anything_else_is_refused_by_the_options_name(text: str) -> None:
    with pytest.raises(CallerError, match="`--keep-for` is") as refused:
        duration_s(text, "--keep-for")
    assert refused.value.code == "invalid_value"
