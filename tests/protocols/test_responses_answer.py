"""The response object."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec import Raw
from openai.types.responses import Response

from turnstile.conversation import Answer, Message, Reply, ReplyFinish, Role, Usage
from turnstile.errors import CallerError, EngineError, TurnstileError
from turnstile.protocols.base import AnswerHead
from turnstile.protocols.responses_answer import WireMessageItem, WireOutputText, begun, ended, failed

HEAD = AnswerHead("r-c0", 7, "m")
ITEM = WireMessageItem("msg_r-c0-0", "completed", (WireOutputText("Hi"),))


def answer(finish: ReplyFinish) -> Answer:
    return Answer((Reply(Message(Role.ASSISTANT), finish),), Usage(5, 2, 3))


def shown(response: object) -> Response:
    """As the official SDK's strict model reads it."""
    return Response.model_validate_json(msgspec.json.encode(response), strict=True)


def test_a_response_that_has_begun_says_what_holds_where_the_request_said_nothing():
    response = shown(begun(HEAD, {"temperature": Raw(b"null")}))
    assert (response.id, response.status, response.created_at, response.output) == ("resp_r-c0", "in_progress", 7, [])
    assert (response.temperature, response.top_p, response.tool_choice, response.truncation) == (
        1.0, 1.0, "auto", "disabled",
    )  # fmt: skip


def test_what_the_request_said_is_repeated():
    echo = {"temperature": Raw(b"0.25"), "instructions": Raw(b'"I"'), "metadata": Raw(b'{"a":"b"}')}
    response = shown(begun(HEAD, echo))
    assert (response.temperature, response.instructions, response.metadata) == (0.25, "I", {"a": "b"})


def test_a_whole_answer_has_its_usage():
    response = shown(ended(begun(HEAD, {}), [ITEM], answer(ReplyFinish.STOP)))
    assert response.usage is not None
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5, 2, 7)
    assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (3, 0)
    assert (response.status, response.output_text, response.incomplete_details) == ("completed", "Hi", None)


def test_an_answer_at_the_limit_is_incomplete():
    response = shown(ended(begun(HEAD, {}), [ITEM], answer(ReplyFinish.LENGTH)))
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineError("x", "y"), "server_error"),
        (TurnstileError("x", "y", status=429), "rate_limit_exceeded"),
        (CallerError("x", "y"), "invalid_prompt"),
        (CallerError("x", "y", code="context_length_exceeded"), "context_length_exceeded"),
    ],
)
def test_a_failure_has_a_code_that_clients_know(error: TurnstileError, code: str):
    response = json.loads(msgspec.json.encode(failed(begun(HEAD, {}), [ITEM], error)))
    assert (response["status"], response["error"]) == ("failed", {"code": code, "message": "x. y."})
