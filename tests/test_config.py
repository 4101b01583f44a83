"""Settings."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from turnstile.config import Settings, check_numbers
from turnstile.errors import CallerError


def test_without_a_word_the_server_listens_on_loopback_and_asks_for_no_keys() -> None:
    settings = Settings(engine="embedded", store=Path("store"))
    assert (settings.host, settings.port, settings.admin_key) == ("127.0.0.1", 7000, "")


@pytest.mark.parametrize(
    ("name", "value", "least"), [("max_calls", 0, "1"), ("grace_s", -0.5, "0"), ("queue_s", math.nan, "0")]
)
def test_a_number_that_is_too_small_is_refused_by_its_name(name: str, value: float, least: str) -> None:
    settings = Settings(engine="embedded", store=Path("store"))
    check_numbers(settings)
    with pytest.raises(CallerError) as refused:
        check_numbers(msgspec.structs.replace(settings, **{name: value}))
    assert (refused.value.code, refused.value.param) == ("invalid_value", name)
    assert str(refused.value) == f"`{name}` is {value}. Give a number of at least {least}."
