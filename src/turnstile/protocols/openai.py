"""What all of OpenAI's dialects share: the error body and the model list."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnstile.errors import CallerError, TurnstileError


class WireError(msgspec.Struct, frozen=True):
    """OpenAI's error object; `param` is null where no one field is at fault."""

    message: str
    type: str
    param: str | None
    code: str


class WireErrorBody(msgspec.Struct, frozen=True):
    """The body of an error answer, and of an error event."""

    error: WireError


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


def error_body(error: TurnstileError) -> bytes:
    """An error as OpenAI's clients expect it.

    Source: `openai` 3.57 chooses its exception by the status alone and shows `message`, `type`, `param` and `code`.
    OpenAI itself answers 400, 401 and 404 with `invalid_request_error` and tells them apart by `code`.
    """
    wire = WireError(str(error), _error_type(error.status), error.param or None, error.code)
    return msgspec.json.encode(WireErrorBody(wire))


def _error_type(status: int) -> str:
    match status:
        case 429:
            return "rate_limit_error"
        case _ if status < 500:
            return "invalid_request_error"
        case _:
            return "server_error"


def models_body(models: Sequence[str], created_s: int) -> bytes:
    """The answer to `GET /v1/models`.

    Args:
        models: served names, in the order to show them.
        created_s: Unix seconds since when they are served.
    """
    return msgspec.json.encode(WireModelList([WireModel(name, created_s) for name in models]))


def model_body(name: str, models: Sequence[str], created_s: int) -> bytes:
    """The answer to `GET /v1/models/NAME`.

    Raises: CallerError, status 404, if there is no such model.
    """
    check_model(name, models)
    return msgspec.json.encode(WireModel(name, created_s))


def check_model(name: str, models: Sequence[str]) -> None:
    """See that a model is served.

    Raises: CallerError, status 404 and code `model_not_found` as at OpenAI, if it is not.
    """
    if name not in models:
        served = ", ".join(f"`{model}`" for model in models)
        raise CallerError(
            f"The model `{name[:100]}` does not exist here",
            f"Ask for one of {served}",
            code="model_not_found",
            status=404,
            param="model",
        )
