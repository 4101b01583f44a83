"""In which dialect a client is to be answered when its request got no further than its address."""

from __future__ import annotations

import re
from collections.abc import Mapping

from turnstile.protocols import DIALECTS
from turnstile.protocols.anthropic import ANTHROPIC
from turnstile.protocols.anthropic_models import is_anthropic_client
from turnstile.protocols.base import Dialect

_ROLLOUT = re.compile(r"/r/[^/]+(?=/)")


def dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """The dialect whose path this is, or lies under; else the one that the headers tell; else OpenAI's.

    Args:
        path: of the request, with or without the rollout.
        headers: names in lower case.
    """
    place = _ROLLOUT.sub("", path, count=1)
    for dialect in DIALECTS:
        if any(place == own or place.startswith(f"{own}/") for own in dialect.paths):
            return dialect
    return ANTHROPIC if is_anthropic_client(headers) else DIALECTS[0]
