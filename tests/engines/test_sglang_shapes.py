from __future__ import annotations

import pytest

from turnstile.engines.sglang_shapes import Event, LogprobEntry, Models, decoded, read
from turnstile.engines.wire import WireAnswer
from turnstile.errors import CallerError, EngineError

EVENT = (
    b'{"text":"Hi","output_ids":[7,9],"prompt_token_ids":[1,2,3],"meta_info":{"id":"r","finish_reason":'
    b'{"type":"stop","matched":9},"prompt_tokens":3,"weight_version":"v2","num_retractions":0,'
    b'"input_token_logprobs":[],"output_token_logprobs":[[-0.5,7,null],[null,9,"!"]],'
    b'"output_token_logprobs_length":2,"completion_tokens":2,"cached_tokens":0,"e2e_latency":0.1,'
    b'"weight_versions":[{"version":"v2","start":0,"end":2}]}}'
)


def test_an_event_is_read_with_what_nobody_asked_for_left_aside():
    event = decoded(EVENT, Event)
    assert (event.output_ids, event.prompt_token_ids, event.error) == ([7, 9], [1, 2, 3], None)
    assert event.meta_info.output_token_logprobs == [LogprobEntry(-0.5, 7), LogprobEntry(None, 9)]
    assert event.meta_info.weight_versions[0].version == "v2"


def test_a_field_of_another_type_is_named():
    with pytest.raises(EngineError, match=r"Expected `array \| null`, got `str` - at `\$\.output_ids`") as caught:
        decoded(b'{"output_ids":"7"}', Event)
    assert caught.value.code == "engine_broken"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error":{"message":"bad ids"}}', "bad ids"),
        (b'{"error":"unknown key"}', "unknown key"),
        (b'{"object":"error","message":"wrong type","type":"Bad Request","code":400}', "wrong type"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b"<html>nginx</html>", "a page of HTML"),
        (b"plain words", "plain words"),
        (b"", "no message"),
    ],
)
def test_each_form_of_an_error_is_read(body, told):
    with pytest.raises(EngineError, match=f"status 500: {told}") as caught:
        read(WireAnswer(500, body), Models)
    assert (caught.value.code, caught.value.status) == ("engine_refused", 500)


@pytest.mark.parametrize(
    "words",
    [
        "The input (9 tokens) is longer than the model's context length (8 tokens).",
        "Requested token count exceeds the model's maximum context length of 8 tokens.",
        "Input length (9 tokens) exceeds the maximum allowed length (8 tokens).",
        "Multimodal prompt is too long after expanding multimodal tokens. After expanding 9 => 99 >= 8.",
        "Request prompt exceeds the KV memory budget: input_len=9.",
    ],
)
def test_a_prompt_that_is_too_long_is_the_callers(words):
    with pytest.raises(CallerError) as caught:
        read(WireAnswer(400, b'{"error":{"message":"%b"}}' % words.encode()), Models)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


def test_a_route_that_is_not_there_says_how_what_answers_is_found_out():
    with pytest.raises(EngineError, match=r"status 404: Not Found\. Give the address of an SGLang server, or leave"):
        read(WireAnswer(404, b'{"detail":"Not Found"}'), Models)


def test_a_redirect_is_no_answer():
    with pytest.raises(EngineError, match="status 302 for a request that answers 200"):
        read(WireAnswer(302, b""), Models)
