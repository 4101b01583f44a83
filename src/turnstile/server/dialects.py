"""What a request's address says of its dialect, for requests that got no further than it too."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.requests import Request

from turnstile.protocols import DIALECTS
from turnstile.protocols.anthropic import ANTHROPIC
from turnstile.protocols.anthropic_models import is_anthropic_client
from turnstile.protocols.base import Dialect
from turnstile.protocols.gemini import GEMINI
from turnstile.protocols.gemini_models import is_gemini_client

_MODEL = "{model}"
_GEMINI_BASE = "/v1beta"
_ROLLOUT = re.compile(r"/r/[^/]+(?=/)")
_METHOD = re.compile(r"/v1/models/.+:\w+")
"""Google's way to name what is done with a model."""


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
    if speaks_gemini(place, headers) or _METHOD.fullmatch(place):
        return GEMINI
    return ANTHROPIC if is_anthropic_client(headers) else DIALECTS[0]


def speaks_gemini(path: str, headers: Mapping[str, str]) -> bool:
    """Whether a client speaks Google's API, by its address where it has one of its own, else by its headers.

    Args:
        path: of the request, with or without the rollout.
        headers: names in lower case.
    """
    place = _ROLLOUT.sub("", path, count=1)
    return place == _GEMINI_BASE or place.startswith(f"{_GEMINI_BASE}/") or is_gemini_client(headers)


def route_of(path: str) -> str:
    """A dialect's path as Starlette writes it: the name of a model may hold slashes."""
    return path.replace(_MODEL, "{model:path}")


def address_of(path: str, request: Request) -> str:
    """A dialect's path with the name of the model that a request put there."""
    return path.replace(_MODEL, request.path_params.get("model", ""))
