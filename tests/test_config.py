"""Settings."""

from __future__ import annotations

from pathlib import Path

from turnstile.config import Settings


def test_without_a_word_the_server_listens_on_loopback_and_asks_for_no_keys() -> None:
    settings = Settings(engine="embedded", store=Path("store"))
    assert (settings.host, settings.port, settings.admin_key) == ("127.0.0.1", 7000, "")
