"""When a client that was refused should come again."""

from __future__ import annotations

import pytest

from turnstile.errors import TurnstileError
from turnstile.server.retry_after import retry_after


@pytest.mark.parametrize(
    ("status", "code", "header"),
    [
        (503, "overloaded", {"retry-after": "5"}),
        (503, "disk_low", {"retry-after": "30"}),
        (503, "store_error", {"retry-after": "1"}),
        (429, "engine_refused", {"retry-after": "1"}),
        (500, "internal_error", {}),
        (400, "invalid_json", {}),
    ],
)
def test_what_passes_by_itself_says_when_to_come_again(status: int, code: str, header: dict[str, str]) -> None:
    assert retry_after(TurnstileError("p", "r", code=code, status=status)) == header
