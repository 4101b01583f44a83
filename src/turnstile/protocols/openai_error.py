"""The error body that all of OpenAI's dialects share."""

from __future__ import annotations

import msgspec

from turnstile.errors import TurnstileError


class WireError(msgspec.Struct, frozen=True):
    """OpenAI's error object; `param` is null where no one field is at fault."""

    message: str
    type: str
    param: str | None
    code: str


class WireErrorBody(msgspec.Struct, frozen=True):
    """The body of an error answer, and of an error event."""

    error: WireError


def error_body(error: TurnstileError, param: str = "") -> bytes:
    """An error as OpenAI's clients expect it.

    Args:
        error: what went wrong.
        param: the field at fault by the dialect's own name, where that is another than the error says.

    Source: `openai` 3.57 chooses its exception by the status alone and shows `message`, `type`, `param` and `code`.
    OpenAI itself answers 400, 401 and 404 with `invalid_request_error` and tells them apart by `code`.
    """
    wire = WireError(str(error), _error_type(error.status), param or error.param or None, error.code)
    return msgspec.json.encode(WireErrorBody(wire))


def _error_type(status: int) -> str:
    match status:
        case 429:
            return "rate_limit_error"
        case _ if status < 500:
            return "invalid_request_error"
        case _:
            return "server_error"
