"""What the log says of a server's settings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from turnstile.config import Settings
from turnstile.server.settings_line import told_settings


def test_only_what_was_given_is_told() -> None:
    given = Settings(engine="http://a:1", store=Path("runs"), port=7001, grace_s=2.0, siblings=(Path("b"),))
    assert told_settings(given) == {"engine": "http://a:1", "store": "runs", "port": 7001, "siblings": ("b",)}


def test_of_a_key_only_that_there_is_one_is_told() -> None:
    keys = {field.name: "planted-secret" for field in msgspec.structs.fields(Settings) if "key" in field.name}
    told = told_settings(Settings(engine="embedded", store=Path("runs"), **keys))
    assert {name: told[name] for name in keys} == dict.fromkeys(keys, "set")
    assert "planted-secret" not in str(told)
    assert {"admin_key", "engine_api_key"} <= keys.keys()
