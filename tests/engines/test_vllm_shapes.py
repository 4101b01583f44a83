"""vLLM's bodies, as they are read."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.engines.vllm_shapes import ErrorDetail, Models, detail_of, is_closed, read, refused
from turnstile.engines.wire import WireAnswer
from turnstile.errors import CallerError, EngineError

OVERFLOWS = [
    ErrorDetail("The decoder prompt (length 2400) is longer than the maximum model length of 2048. Make sure ..."),
    ErrorDetail("This model's maximum context length is 2048 tokens. However, your prompt ...", param="input_tokens"),
    ErrorDetail("Input length (2400) exceeds model's maximum context length (2048)."),
]
"""As vLLM 0.32.0 words it at its three doors."""


@pytest.mark.parametrize("detail", OVERFLOWS)
def test_an_overflow_is_told_by_what_its_wordings_have_in_common(detail):
    problem = refused(400, detail)
    assert isinstance(problem, CallerError)
    assert (problem.code, problem.param) == ("context_length_exceeded", "messages")
    assert detail.message in problem.problem


@pytest.mark.parametrize(
    ("status", "detail", "code", "remedy"),
    [
        (400, ErrorDetail("temperature must be in [0, 2], got 3.0."), "engine_refused", "Look into"),
        (500, ErrorDetail(), "engine_refused", "Look into"),
        (302, ErrorDetail(), "engine_broken", "Check that the address"),
    ],
)
def test_other_refusals_are_the_engine_s_with_its_status(status, detail, code, remedy):
    problem = refused(status, detail)
    assert isinstance(problem, EngineError)
    assert problem.code == code
    assert problem.remedy.startswith(remedy)
    assert code == "engine_broken" or problem.status == status


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"no","code":400}}', "no"),
        (b'{"error":"Unauthorized"}', '{"error":"Unauthorized"}'),
        (b"<html>", "a page of HTML"),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_an_error_is_read_whatever_it_is_made_of(body, message):
    assert detail_of(body).message == message


@pytest.mark.parametrize(("status", "closed"), [(403, True), (404, True), (405, True), (501, True), (400, False)])
def test_a_closed_route_is_told_by_its_status(status, closed):
    assert is_closed(WireAnswer(status, b"")) is closed


def test_what_is_no_such_body_is_named():
    with pytest.raises(EngineError, match=r"id"):
        read(WireAnswer(200, b'{"data":[{"owned_by":"vllm"}]}'), Models)
    with pytest.raises(EngineError, match="it is not JSON"):
        read(WireAnswer(200, b"{"), Models)
    assert read(WireAnswer(200, msgspec.json.encode({"data": []})), Models) == Models()
