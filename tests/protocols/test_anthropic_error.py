from __future__ import annotations

import json

import anthropic
import pytest

from turnstile.errors import CallerError, EngineError
from turnstile.protocols.anthropic_error import error_body


@pytest.mark.parametrize(
    ("status", "kind", "exception"),
    [
        (400, "invalid_request_error", anthropic.BadRequestError),
        (401, "authentication_error", anthropic.AuthenticationError),
        (403, "permission_error", anthropic.PermissionDeniedError),
        (404, "not_found_error", anthropic.NotFoundError),
        (409, "invalid_request_error", anthropic.ConflictError),
        (413, "request_too_large", anthropic.APIStatusError),
        (429, "rate_limit_error", anthropic.RateLimitError),
        (500, "api_error", anthropic.InternalServerError),
        (502, "api_error", anthropic.InternalServerError),
        (503, "overloaded_error", anthropic.APIStatusError),
        (504, "timeout_error", anthropic.APIStatusError),
        (529, "overloaded_error", anthropic.APIStatusError),
    ],
)
def test_each_status_has_its_type_and_the_sdk_its_exception(anthropic_answered, status, kind, exception):
    body = error_body(CallerError("It is so", "Do this", status=status))
    assert json.loads(body) == {
        "type": "error",
        "error": {"type": kind, "message": "It is so. Do this."},
        "request_id": None,
    }
    with pytest.raises(exception, match=r"It is so\. Do this\.") as caught:
        anthropic_answered(body, "application/json", status).messages.create(
            model="m", max_tokens=1, messages=[{"role": "user", "content": "hi"}]
        )
    assert caught.value.status_code == status


def test_a_request_id_is_told_where_there_is_one():
    assert json.loads(error_body(EngineError("a", "b"), "req_1"))["request_id"] == "req_1"


def test_a_prompt_that_is_too_long_is_said_in_the_words_that_claude_code_compacts_at():
    error = CallerError("The prompt has 9 tokens", "Shorten it", code="context_length_exceeded")
    assert json.loads(error_body(error))["error"]["message"] == (
        "prompt is too long: The prompt has 9 tokens. Shorten it."
    )
