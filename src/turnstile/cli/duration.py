"""Lengths of time as people write them."""

from __future__ import annotations

import re

from turnstile.config import LONGEST_S
from turnstile.errors import CallerError

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_WRITTEN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])|0")


def duration_s(text: str, option: str) -> float:
    """Seconds from `90s`, `15m`, `12h`, `7d` or `2w`; `0` is none.

    A number alone is refused: who means days would lose what is older than as many seconds.

    Raises: CallerError that names the option.
    """
    written = _WRITTEN.fullmatch(text.strip())
    if written is None:
        raise CallerError(
            f"`{option}` is `{text[:40]}`", "Give a number and one of s, m, h, d, w, such as 7d", code="invalid_value"
        )
    seconds = float(written[1]) * _UNITS_S[written[2]] if written[1] else 0.0
    if seconds > LONGEST_S:
        raise CallerError(f"`{option}` is `{text[:40]}`", "Give at most 5000w; 0 is for ever", code="invalid_value")
    return seconds
