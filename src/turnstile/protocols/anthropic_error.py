"""Errors as Anthropic's clients expect them."""

from __future__ import annotations

import msgspec

from turnstile.errors import TurnstileError


class WireError(msgspec.Struct, frozen=True):
    """What was wrong."""

    type: str
    message: str


class WireErrorBody(msgspec.Struct, frozen=True):
    """The body of an error answer, and of an error event."""

    error: WireError
    request_id: str | None = None
    """Also in the header `request-id`, which is where the SDKs read it."""
    type: str = "error"


def error_body(error: TurnstileError, request_id: str | None = None) -> bytes:
    """An error in Anthropic's shape.

    Source: Anthropic's API reference, "Errors". The `anthropic` SDK chooses its exception by the status, and for an
    error event, which comes behind status 200, shows the body. Claude Code compacts its history when a 400 begins
    with `prompt is too long`.
    """
    said = str(error)
    if error.code == "context_length_exceeded":
        said = f"prompt is too long: {said}"
    return msgspec.json.encode(WireErrorBody(WireError(_error_type(error.status), said), request_id))


_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _error_type(status: int) -> str:
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
