"""The model list, as OpenAI's clients ask for it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.errors import CallerError


class WireModel(msgspec.Struct, frozen=True):
    """A served model."""

    id: str
    created: int
    object: str = "model"
    owned_by: str = "turnstile"


class WireModelList(msgspec.Struct, frozen=True):
    """All served models."""

    data: list[WireModel]
    object: str = "list"


def models_body(models: Sequence[str], created_s: int = 0) -> bytes:
    """The answer to `GET /v1/models`.

    Args:
        models: served names, in the order to show them.
        created_s: Unix seconds since when they are served; 0 = not said.
    """
    return msgspec.json.encode(WireModelList([WireModel(name, created_s) for name in models]))


def model_body(models: Sequence[str], name: str, created_s: int = 0) -> bytes:
    """The answer to `GET /v1/models/NAME`.

    Raises: CallerError, status 404, if there is no such model.
    """
    check_model(models, name)
    return msgspec.json.encode(WireModel(name, created_s))


def check_model(models: Sequence[str], name: str) -> None:
    """See that a model is served.

    Raises: CallerError, status 404 and code `model_not_found` as at OpenAI, if it is not.
    """
    if name not in models:
        served = " or ".join(f"`{model}`" for model in models)
        raise CallerError(
            f"The model `{name[:100]}` does not exist here",
            f"Ask for {served}, or serve it under this name with --model",
            code="model_not_found",
            status=404,
            param="model",
        )
