"""Errors as Google's clients expect them."""

from __future__ import annotations

import msgspec

from turnstile.errors import TurnstileError


class WireErrorInfo(msgspec.Struct, frozen=True):
    """What programs may go by."""

    reason: str
    metadata: dict[str, str]
    domain: str = "turnstile"
    type: str = msgspec.field(name="@type", default="type.googleapis.com/google.rpc.ErrorInfo")


class WireStatus(msgspec.Struct, frozen=True):
    """What was wrong."""

    code: int
    message: str
    status: str
    details: list[WireErrorInfo]


class WireErrorBody(msgspec.Struct, frozen=True):
    """The body of an error answer."""

    error: WireStatus


def error_body(error: TurnstileError) -> bytes:
    """An error in Google's shape.

    Source: Google's API design guide, "Errors": `status` is a name of google.rpc.Code. The `google-genai` SDK shows
    code, status and message; libraries know a conversation that is too long by Google's sentence for it.
    """
    said = str(error)
    if error.code == "context_length_exceeded":
        said = f"The input token count exceeds the maximum number of tokens allowed. {said}"
    info = WireErrorInfo(error.code, {"field": error.param} if error.param else {})
    return msgspec.json.encode(WireErrorBody(WireStatus(error.status, said, _status_name(error.status), [info])))


_STATUS_NAMES = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def _status_name(status: int) -> str:
    return _STATUS_NAMES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
