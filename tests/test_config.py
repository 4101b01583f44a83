"""Settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from turnstile.config import Settings, check_numbers
from turnstile.errors import CallerError


def test_without_a_word_the_server_listens_on_loopback_and_asks_for_no_keys() -> None:
    settings = Settings(engine="embedded", store=Path("store"))
    assert (settings.host, settings.port, settings.admin_key) == ("127.0.0.1", 7000, "")


@pytest.mark.parametrize(
    ("name", "value", "bounds"),
    [
        ("max_calls", 0, "of at least 1"),
        ("grace_s", -0.5, "from 0 to 3024000000"),
        ("queue_s", math.nan, "from 0 to 3024000000"),
        ("keep_gb", math.inf, "of at least 0"),
        ("port", -1, "from 0 to 65535"),
        ("max_json_nesting", 201, "from 1 to 200"),
        ("slots", None, "of at least 1"),
    ],
)
def test_a_number_that_a_server_cannot_work_with_is_refused_by_its_name(name: str, value: Any, bounds: str) -> None:
    settings = Settings(engine="embedded", store=Path("store"))
    check_numbers(settings)
    with pytest.raises(CallerError) as refused:
        check_numbers(msgspec.structs.replace(settings, **{name: value}))
    assert (refused.value.code, refused.value.param) == ("invalid_value", name)
    assert str(refused.value).startswith(f"`{name}` is {value}. Give a number {bounds}")
