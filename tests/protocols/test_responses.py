"""OpenAI Responses as a dialect."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.conversation import Answer, Message, Reply, ReplyFinish, Role, Text, Usage
from turnstile.errors import CallerError, EngineError
from turnstile.protocols.base import AnswerHead, WireRequest
from turnstile.protocols.openai_error import error_body
from turnstile.protocols.responses import RESPONSES


def test_a_request_comes_with_the_way_to_answer_it():
    decoded = RESPONSES.decode(WireRequest(b'{"model": "m", "input": "hi"}', {}))
    encoder = decoded.answer_with(AnswerHead("r-c0", 7, "m"))
    reply = Reply(Message(Role.ASSISTANT, (Text(""),)), ReplyFinish.STOP)
    body = msgspec.json.decode(encoder.finish(Answer((reply,), Usage(1, 1))))
    assert (body["id"], body["object"], body["status"]) == ("resp_r-c0", "response", "completed")


def test_errors_have_openais_shape():
    error = EngineError("Down", "Start it")
    assert RESPONSES.refuse(error) == error_body(error)


@pytest.mark.parametrize(
    ("param", "own"),
    [
        ("messages[3]", "input"),
        ("response_format", "text.format"),
        ("max_tokens", "max_output_tokens"),
        ("tools", "tools"),
    ],
)
def test_a_field_that_other_rooms_name_has_its_name_of_this_dialect(param: str, own: str):
    body = msgspec.json.decode(RESPONSES.refuse(CallerError("x", "y", param=param)))
    assert body["error"]["param"] == own
