"""What is read of a token server's answers, and what its errors become."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.engines.token_server_shapes import (
    ErrorDetail,
    Info,
    Request,
    broken,
    natural_logs,
    read,
    refusal,
    unless,
    written,
)
from turnstile.engines.wire import WireAnswer
from turnstile.errors import CallerError, EngineError


def test_a_request_says_what_changes_something_and_nothing_else():
    plain = Request(temperature=1.0, max_tokens=None, stop_ids=(1,), stream=True)
    assert written(b"4,5", plain) == (
        b'{"input_ids":[4,5],"temperature":1.0,"max_tokens":null,"stop_ids":[1],"stream":true}'
    )
    biased = msgspec.structs.replace(plain, top_p=unless(1.0, 0.5), top_k=unless(0, 0), logit_bias=((3, 2.0),))
    assert msgspec.json.decode(written(b"4", biased)) == {
        "input_ids": [4],
        "temperature": 1.0,
        "max_tokens": None,
        "stop_ids": [1],
        "stream": True,
        "top_p": 0.5,
        "logit_bias": [[3, 2.0]],
    }


def test_numbers_that_are_none_are_unknown():
    assert natural_logs([1, 2, 3, 4], [-0.5, None, -9999.0, 1e-5]) == [-0.5, None, None, 0.0]


@pytest.mark.parametrize("values", [[], [-0.5], [-0.5, -0.5, -0.5]])
def test_numbers_that_are_not_as_many_as_ids_are_numbers_of_nothing(values):
    assert natural_logs([1, 2], values) == [None, None]


def test_a_probability_above_one_cannot_be():
    with pytest.raises(EngineError, match=r"`logprobs` has 0\.5"):
        natural_logs([1], [0.5])


def test_a_prompt_that_is_too_long_is_the_callers_error():
    detail = ErrorDetail("the prompt has 300 tokens", "context_length_exceeded")
    found = refusal(400, detail)
    assert isinstance(found, CallerError)
    assert (found.code, found.param) == ("context_length_exceeded", "messages")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, b'{"error":{"code":"invalid_request","message":"no"}}', "status 400: no (invalid_request)"),
        (500, b"<html>", "a page of HTML"),
        (503, b"busy", "status 503: busy"),
    ],
)
def test_a_refusal_has_the_engines_words(status, body, said):
    with pytest.raises(EngineError) as refused:
        read(WireAnswer(status, body), Info)
    assert said in str(refused.value)
    assert (refused.value.code, refused.value.status) == ("engine_refused", status)


def test_an_error_within_a_stream_is_an_error_of_the_engine():
    assert (refusal(200, ErrorDetail("fell over")).status, refusal(200, ErrorDetail("x")).code) == (
        EngineError.status,
        "engine_refused",
    )


@pytest.mark.parametrize("body", [b"{}", b"{oops", b"\xff", b'{"protocol":1}'])
def test_what_is_no_info_is_refused_by_name(body):
    with pytest.raises(EngineError) as refused:
        read(WireAnswer(200, body), Info)
    assert refused.value.code == broken("x").code == "engine_broken"


def test_another_status_for_what_answers_200_is_no_answer():
    with pytest.raises(EngineError, match="status 302"):
        read(WireAnswer(302, b""), Info)
