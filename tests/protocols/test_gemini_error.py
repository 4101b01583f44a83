from __future__ import annotations

import json

import pytest

from turnstile.errors import CallerError, EngineError
from turnstile.protocols.gemini_error import error_body


def test_an_error_has_googles_shape_with_code_and_field_for_programs():
    error = CallerError("No such thing", "Send another", code="invalid_value", param="contents[0].role")
    assert json.loads(error_body(error)) == {
        "error": {
            "code": 400,
            "message": "No such thing. Send another.",
            "status": "INVALID_ARGUMENT",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "invalid_value",
                    "domain": "turnstile",
                    "metadata": {"field": "contents[0].role"},
                }
            ],
        }
    }


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "INVALID_ARGUMENT"), (401, "UNAUTHENTICATED"), (403, "PERMISSION_DENIED"), (404, "NOT_FOUND"),
        (409, "ABORTED"), (413, "INVALID_ARGUMENT"), (429, "RESOURCE_EXHAUSTED"), (500, "INTERNAL"),
        (502, "UNAVAILABLE"), (503, "UNAVAILABLE"), (504, "DEADLINE_EXCEEDED"), (599, "INTERNAL"),
    ],
)  # fmt: skip
def test_the_status_has_a_name_of_google_rpc(status, name):
    assert json.loads(error_body(EngineError("It", "Do", status=status)))["error"]["status"] == name


def test_a_conversation_that_is_too_long_is_told_in_googles_words():
    said = json.loads(error_body(CallerError("9 do not fit", "Send less", code="context_length_exceeded")))
    assert said["error"]["message"] == (
        "The input token count exceeds the maximum number of tokens allowed. 9 do not fit. Send less."
    )
