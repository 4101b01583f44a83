"""The model list, as Google's clients ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from turnstile.protocols.models import check_model

PREFIX = "models/"
"""What stands in front of a model's name in Google's resource names."""


class WireModel(msgspec.Struct, frozen=True, rename="camel"):
    """A served model."""

    name: str
    display_name: str
    version: str = "1"
    supported_generation_methods: tuple[str, ...] = ("generateContent", "streamGenerateContent", "countTokens")


class WireModelPage(msgspec.Struct, frozen=True):
    """All served models, on one page."""

    models: list[WireModel]


def is_gemini_client(headers: Mapping[str, str]) -> bool:
    """Whether a client speaks Google's API, on a path that several dialects share.

    Source: Google's SDKs send `x-goog-api-client`, and all send a key as `x-goog-api-key`, if not in the address.
    """
    return "x-goog-api-client" in headers or "x-goog-api-key" in headers


def gemini_models_body(models: Sequence[str]) -> bytes:
    """The answer to `GET /v1beta/models`, for served names in the order to show them."""
    return msgspec.json.encode(WireModelPage([_model(name) for name in models]))


def gemini_model_body(models: Sequence[str], name: str) -> bytes:
    """The answer to `GET /v1beta/models/NAME`.

    Raises: CallerError, status 404, if there is no such model.
    """
    check_model(models, name)
    return msgspec.json.encode(_model(name))


def _model(name: str) -> WireModel:
    return WireModel(PREFIX + name, name)
