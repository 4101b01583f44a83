"""What the log says of a server's settings when it starts: no secret, and nothing that is as it always is."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import msgspec

from turnstile.config import Settings
from turnstile.server.logs import LogValue

_SECRET = "key"
"""In the name of a setting whose value is a secret."""


def told_settings(settings: Settings) -> dict[str, LogValue]:
    """The settings that were given; of a secret only that it is there."""
    told: dict[str, LogValue] = {}
    for field in msgspec.structs.fields(Settings):
        value: object = getattr(settings, field.name)
        if value in (field.default, (), "", None):
            continue
        if _SECRET in field.name:
            told[field.name] = "set"
        else:
            told[field.name] = _told(value)
    return told


def _told(value: object) -> LogValue:
    match value:
        case str() | int() | float() | bool():
            return value
        case tuple():
            return tuple(str(each) for each in cast("tuple[object, ...]", value))
        case Path():
            return str(value)
        case _:
            return type(value).__name__
