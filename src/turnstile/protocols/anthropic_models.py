"""The model list, as Anthropic's clients ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from turnstile.protocols.models import check_model


class WireModelInfo(msgspec.Struct, frozen=True):
    """A served model."""

    id: str
    display_name: str
    created_at: str = "1970-01-01T00:00:00Z"
    """Anthropic's own word for a date that is not known."""
    lifecycle: str = "active"
    type: str = "model"


class WireModelPage(msgspec.Struct, frozen=True):
    """All served models, on one page."""

    data: list[WireModelInfo]
    first_id: str | None
    last_id: str | None
    has_more: bool = False


def is_anthropic_client(headers: Mapping[str, str]) -> bool:
    """Whether a client speaks Anthropic's API, on a path that several dialects share.

    Source: every Anthropic request must carry `anthropic-version`, and the SDKs do.
    """
    return "anthropic-version" in headers


def anthropic_models_body(models: Sequence[str]) -> bytes:
    """The answer to `GET /v1/models`, for served names in the order to show them."""
    infos = [WireModelInfo(name, name) for name in models]
    return msgspec.json.encode(WireModelPage(infos, models[0] if models else None, models[-1] if models else None))


def anthropic_model_body(models: Sequence[str], name: str) -> bytes:
    """The answer to `GET /v1/models/NAME`.

    Raises: CallerError, status 404, if there is no such model.
    """
    check_model(models, name)
    return msgspec.json.encode(WireModelInfo(name, name))
