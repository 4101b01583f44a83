from __future__ import annotations

import json

import openai
import pytest

from turnstile.errors import CallerError, EngineError, StoreError, TurnstileError
from turnstile.protocols.openai_error import error_body


def test_an_error_names_message_type_param_and_code():
    error = CallerError("`n`: expected an integer, got x", "Send an integer", code="invalid_value", param="n")
    assert json.loads(error_body(error)) == {
        "error": {
            "message": "`n`: expected an integer, got x. Send an integer.",
            "type": "invalid_request_error",
            "param": "n",
            "code": "invalid_value",
        }
    }


def test_param_is_null_where_no_field_is_at_fault():
    assert json.loads(error_body(EngineError("down", "Start it")))["error"]["param"] is None


@pytest.mark.parametrize(
    ("error", "kind", "raised"),
    [
        (CallerError("p", "r"), "invalid_request_error", openai.BadRequestError),
        (CallerError("p", "r", status=401), "invalid_request_error", openai.AuthenticationError),
        (CallerError("p", "r", status=403), "invalid_request_error", openai.PermissionDeniedError),
        (CallerError("p", "r", status=404), "invalid_request_error", openai.NotFoundError),
        (CallerError("p", "r", status=409), "invalid_request_error", openai.ConflictError),
        (CallerError("p", "r", status=413), "invalid_request_error", openai.APIStatusError),
        (CallerError("p", "r", status=429), "rate_limit_error", openai.RateLimitError),
        (TurnstileError("p", "r"), "server_error", openai.InternalServerError),
        (EngineError("p", "r"), "server_error", openai.InternalServerError),
        (StoreError("p", "r"), "server_error", openai.InternalServerError),
    ],
)
def test_the_official_client_raises_what_the_status_means(answered_with, error, kind, raised):
    client = answered_with(error_body(error), "application/json", error.status)
    with pytest.raises(raised) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert (caught.value.type, caught.value.code, caught.value.body["message"]) == (kind, error.code, str(error))
