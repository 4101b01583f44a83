from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.conversation import (
    Answer,
    Message,
    Reply,
    ReplyDelta,
    ReplyFinish,
    Role,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from turnstile.errors import EngineError
from turnstile.protocols.base import AnswerHead, Severed
from turnstile.protocols.gemini_decode import AnswerForm, Delivery, ThoughtDisplay
from turnstile.protocols.gemini_encode import StreamEncoder, WholeEncoder, encoder_for
from turnstile.protocols.gemini_error import error_body
from turnstile.protocols.signature import signature_of

HEAD = AnswerHead("r-c7", 1_700_000_000, "policy")
SHOWN = ThoughtDisplay.SHOWN
WHOLE, EVENTS, ARRAY = (AnswerForm(delivery, SHOWN) for delivery in Delivery)
CALL = (ToolCallDelta(0, "t1", "ls"), ToolCallDelta(0, arguments='{"p": "/a"}'))
SAID = [ReplyDelta(reasoning="so"), ReplyDelta(content="Hi"), ReplyDelta(calls=CALL), ReplyDelta(content=" done")]
ERROR = EngineError("It died", "Look")


def answer(*finishes: ReplyFinish) -> Answer:
    replies = tuple(Reply(Message(Role.ASSISTANT), finish) for finish in finishes or (ReplyFinish.STOP,))
    return Answer(replies, Usage(11, 5, 8))


def told(form: AnswerForm, deltas: list[ReplyDelta], ending: Answer | None = None) -> list[dict]:
    """Every chunk of a stream, or the one answer."""
    encoder = encoder_for(form, HEAD)
    body = b"".join([*map(encoder.feed, deltas), encoder.finish(ending or answer())]).decode()
    if form.delivery is not Delivery.EVENTS:
        found = json.loads(body)
        return found if form.delivery is Delivery.ARRAY else [found]
    assert body.endswith("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in body.split("\n\n")[:-1]]


def parts_of(chunks: list[dict]) -> list[dict]:
    return [part for chunk in chunks for each in chunk["candidates"] for part in each["content"]["parts"]]


def test_a_whole_answer_leaves_at_the_end_only():
    encoder = encoder_for(WHOLE, HEAD)
    assert [encoder.feed(delta) for delta in SAID] == [b""] * 4
    assert (encoder.keep_alive(), encoder.media_type) == (b"", "application/json")
    mark = signature_of("r-c7")
    assert json.loads(encoder.finish(answer(ReplyFinish.LENGTH))) == {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "so", "thought": True, "thoughtSignature": mark},
                        {"text": "Hi"},
                        {"functionCall": {"id": "t1", "name": "ls", "args": {"p": "/a"}}, "thoughtSignature": mark},
                        {"text": " done"},
                    ],
                    "role": "model",
                },
                "index": 0,
                "finishReason": "MAX_TOKENS",
            }
        ],
        "modelVersion": "policy",
        "responseId": "r-c7",
        "usageMetadata": {
            "promptTokenCount": 11,
            "candidatesTokenCount": 5,
            "totalTokenCount": 16,
            "cachedContentTokenCount": 8,
        },
    }


@pytest.mark.parametrize("form", [EVENTS, ARRAY])
def test_a_stream_says_what_a_whole_answer_says(form):
    chunks = told(form, SAID)
    assert [part for part in parts_of(chunks) if part != {"text": ""}] == parts_of(told(WHOLE, SAID))
    assert ["usageMetadata" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk["candidates"][0].get("finishReason") for chunk in chunks][-2:] == [None, "STOP"]


@pytest.mark.parametrize("form", [WHOLE, EVENTS, ARRAY])
def test_an_answer_that_says_nothing_holds_an_empty_text(form):
    assert parts_of(told(form, [])) == [{"text": ""}]


@pytest.mark.parametrize("form", [WHOLE, EVENTS, ARRAY])
def test_candidates_are_told_apart_and_marked_apart(form):
    deltas = [
        ReplyDelta(content="a"),
        ReplyDelta(choice=1, calls=(ToolCallDelta(0, "t", "ls"),)),
        ReplyDelta(content="b"),
    ]
    chunks = told(form, deltas, answer(ReplyFinish.STOP, ReplyFinish.LENGTH))
    said = [
        (each["index"], part) for chunk in chunks for each in chunk["candidates"] for part in each["content"]["parts"]
    ]
    assert "".join(part.get("text", "") for index, part in said if index == 0) == "ab"
    (call,) = [part for index, part in said if index == 1 and "functionCall" in part]
    assert call["thoughtSignature"] == signature_of("r-c7.1")
    ends = {
        each["index"]: each["finishReason"]
        for chunk in chunks
        for each in chunk["candidates"]
        if "finishReason" in each
    }
    assert ends == {0: "STOP", 1: "MAX_TOKENS"}


@pytest.mark.parametrize("form", [WHOLE, EVENTS])
def test_log_probabilities_of_hidden_tokens_come_with_the_next_part(form):
    asked = AnswerForm(form.delivery, top_logprobs=0)
    deltas = [
        ReplyDelta(reasoning="r", logprobs=(TokenLogprob(b"r", -1.0),)),
        ReplyDelta(content="a", logprobs=(TokenLogprob(b"a", -2.0),)),
        ReplyDelta(logprobs=(TokenLogprob(b"<end>", -3.0),)),
    ]
    chunks = told(asked, deltas)
    shown = [
        each["token"]
        for chunk in chunks
        for candidate in chunk["candidates"]
        for each in candidate.get("logprobsResult", {}).get("chosenCandidates", [])
    ]
    assert shown == ["r", "a", "<end>"]


@pytest.mark.parametrize("form", [EVENTS, ARRAY])
def test_a_broken_stream_says_its_error_bare_and_has_no_end(form):
    encoder = encoder_for(form, HEAD)
    encoder.feed(ReplyDelta(content="Hi"))
    assert encoder.fail(ERROR) == Severed(error_body(ERROR) + b"\n")
    with pytest.raises(RuntimeError):
        encoder.finish(answer())


def test_a_whole_answer_that_fails_is_an_error_body():
    assert encoder_for(WHOLE, HEAD).fail(ERROR) == error_body(ERROR)


def test_the_form_decides_the_encoder_and_its_media_type():
    assert isinstance(encoder_for(WHOLE, HEAD), WholeEncoder)
    assert isinstance(encoder_for(ARRAY, HEAD), StreamEncoder)
    assert encoder_for(EVENTS, HEAD).media_type == "text/event-stream; charset=utf-8"
    assert encoder_for(ARRAY, HEAD).media_type == "application/json"


texts = st.text(max_size=6)
deltas = st.builds(ReplyDelta, reasoning=texts, content=texts)


@pytest.mark.parametrize("form", [EVENTS, ARRAY])
@given(st.lists(deltas, max_size=6), st.sets(st.integers(0, 6)))
def test_any_text_arrives_whatever_keeps_the_stream_alive(form, said, silences):
    encoder = encoder_for(form, HEAD)
    body = b""
    for at, delta in enumerate(said):
        body += encoder.keep_alive() if at in silences else b""
        body += encoder.feed(delta)
    body += encoder.finish(answer())
    events = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line] if form is EVENTS else []
    chunks = [json.loads(event) for event in events] if form is EVENTS else json.loads(body)
    shown = parts_of(chunks)
    assert "".join(part["text"] for part in shown if not part.get("thought")) == "".join(each.content for each in said)
    assert "".join(part["text"] for part in shown if part.get("thought")) == "".join(each.reasoning for each in said)
