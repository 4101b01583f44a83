from __future__ import annotations

import json

from turnstile.conversation import Answer, Message, Reply, ReplyDelta, ReplyFinish, Role, Text, ToolCall, Usage
from turnstile.errors import CallerError
from turnstile.protocols.base import AnswerHead
from turnstile.protocols.chat import CHAT

HEAD = AnswerHead("c1", 1, "m")


def test_it_answers_at_both_of_its_paths():
    assert (CHAT.name, CHAT.paths) == ("openai.chat", ("/v1/chat/completions", "/chat/completions"))


def test_the_client_alone_decides_whether_the_answer_streams(wire_request):
    delta = ReplyDelta(content="hello")
    whole = CHAT.decode(wire_request()).answer_with(HEAD)
    stream = CHAT.decode(wire_request(stream=True)).answer_with(HEAD)
    assert whole.feed(delta) == b""
    assert stream.feed(delta).count(b"data: ") == 2


def test_each_answer_has_an_encoder_of_its_own(wire_request):
    decoded = CHAT.decode(wire_request(stream=True))
    first, second = decoded.answer_with(HEAD), decoded.answer_with(HEAD)
    assert first.feed(ReplyDelta(content="a")) == second.feed(ReplyDelta(content="a"))


def test_a_handed_out_message_comes_back_as_the_same_message(wire_request):
    call = ToolCall("call_1", "ls", '{"b": 1, "a":2}')
    told = Message(Role.ASSISTANT, (Text("ok\n"),), reasoning="why", calls=(call,))
    encoder = CHAT.decode(wire_request()).answer_with(HEAD)
    body = json.loads(encoder.finish(Answer((Reply(told, ReplyFinish.STOP),), Usage(1, 1))))
    echoed = body["choices"][0]["message"]
    assert CHAT.decode(wire_request(messages=[echoed])).call.messages == (told,)


def test_a_refusal_has_openais_form():
    error = CallerError("The model `x` is not served here", "Ask for `m`", code="model_not_found", status=404)
    assert json.loads(CHAT.refuse(error))["error"] == {
        "message": "The model `x` is not served here. Ask for `m`.",
        "type": "invalid_request_error",
        "param": None,
        "code": "model_not_found",
    }
