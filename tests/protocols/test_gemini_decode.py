from __future__ import annotations

import json

import pytest

from turnstile.conversation import AnyText, Ending, JsonObject, JsonSchema, Sampling
from turnstile.errors import CallerError
from turnstile.protocols.base import WireRequest
from turnstile.protocols.gemini_decode import AnswerForm, Delivery, ThoughtDisplay, decode, decode_count

GENERATE = "/v1beta/models/org/m:generateContent"
STREAM = "/v1/models/m:streamGenerateContent"


def request(path=GENERATE, query=None, contents=None, **fields) -> WireRequest:
    body = {"contents": contents or [{"parts": [{"text": "hi"}]}], **fields}
    return WireRequest(json.dumps(body).encode(), {}, path, query or {})


def call_of(**settings):
    return decode(request(generationConfig=settings))[0]


def refused(**fields) -> str:
    with pytest.raises(CallerError) as caught:
        decode(request(**fields))
    return caught.value.param


def test_the_address_names_the_model_and_how_to_answer():
    call, form = decode(request())
    assert (call.dialect, call.model, form) == ("google.gemini", "org/m", AnswerForm())
    assert decode(request(STREAM))[1].delivery is Delivery.ARRAY
    assert decode(request(STREAM, {"alt": "sse"}))[1].delivery is Delivery.EVENTS
    assert decode(request(STREAM, {"$alt": "json"}))[1].delivery is Delivery.ARRAY
    assert decode(request(GENERATE, {"alt": "sse"}))[1].delivery is Delivery.WHOLE
    assert refused(path=STREAM, query={"alt": "proto"}) == "alt"


def test_an_address_without_a_model_is_not_found():
    with pytest.raises(CallerError) as caught:
        decode(request(""))
    assert caught.value.status == 404


def test_settings_are_those_of_sampling():
    call = call_of(
        temperature=0.5, topP=0.9, topK=40.0, maxOutputTokens=9, stopSequences=["x"], candidateCount=2, seed=7,
        presencePenalty=0.1, frequencyPenalty=0.2, responseLogprobs=True, logprobs=3, minP=0.05, repetitionPenalty=1.1,
    )  # fmt: skip
    assert call.sampling == Sampling(
        temperature=0.5, top_p=0.9, top_k=40, min_p=0.05, presence_penalty=0.1, frequency_penalty=0.2,
        repetition_penalty=1.1, seed=7, max_tokens=9, stop=("x",), choices=2, top_logprobs=3,
    )  # fmt: skip
    assert call_of().sampling == Sampling()
    assert call_of(topK=-1).sampling.top_k == 0
    assert call_of(responseLogprobs=True).sampling.top_logprobs == 0


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"topK": 1.5}, "generationConfig.topK"),
        ({"logprobs": 2}, "generationConfig.logprobs"),
        ({"responseMimeType": "text/x.enum"}, "generationConfig.responseMimeType"),
        ({"responseSchema": {"type": "OBJECT"}}, "generationConfig.responseMimeType"),
        ({"responseJsonSchema": 3, "responseMimeType": "application/json"}, "generationConfig.responseJsonSchema"),
        ({"thinkingConfig": {"thinkingLevel": "DEEP"}}, "generationConfig.thinkingConfig.thinkingLevel"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(settings, param):
    assert refused(generationConfig=settings) == param


@pytest.mark.parametrize(
    ("settings", "form"),
    [
        ({}, AnyText()),
        ({"responseMimeType": "text/plain"}, AnyText()),
        ({"responseMimeType": "application/json"}, JsonObject()),
        (
            {"responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"}},
            JsonSchema('{"type":"object"}'),
        ),
        (
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "array"}},
            JsonSchema('{"type": "array"}'),
        ),
    ],
)
def test_the_mime_type_and_a_schema_are_the_form_of_the_answer(settings, form):
    assert call_of(**settings).output == form


@pytest.mark.parametrize(
    ("thinking", "arguments"),
    [
        ({}, {}),
        ({"thinkingBudget": -1}, {}),
        ({"thinkingBudget": 0}, {"enable_thinking": False}),
        ({"thinkingBudget": 8192}, {"enable_thinking": True}),
        ({"thinkingLevel": "low"}, {"reasoning_effort": "low"}),
        ({"thinkingLevel": "THINKING_LEVEL_UNSPECIFIED"}, {}),
    ],
)
def test_thinking_is_told_to_the_template_in_its_own_words(thinking, arguments):
    assert json.loads(call_of(thinkingConfig=thinking).template_kwargs) == arguments


def test_template_arguments_may_be_given_and_win():
    call = decode(
        request(
            chatTemplateKwargs={"enable_thinking": True}, generationConfig={"thinkingConfig": {"thinkingBudget": 0}}
        )
    )[0]
    assert json.loads(call.template_kwargs) == {"enable_thinking": True}


def test_thoughts_are_shown_to_who_asks_for_them():
    shown = decode(request(generationConfig={"thinkingConfig": {"includeThoughts": True}}))[1]
    assert shown.thoughts is ThoughtDisplay.SHOWN


def test_a_last_content_of_the_model_is_continued_unless_it_calls():
    said = [{"parts": [{"text": "hi"}]}, {"role": "model", "parts": [{"text": "He"}]}]
    assert decode(request(contents=said))[0].ending is Ending.CONTINUE
    said[1]["parts"] = [{"functionCall": {"name": "f"}}]
    assert refused(contents=said) == "contents[1]"


def test_a_count_is_understood_as_the_call_would_be():
    asked = request("/v1beta/models/org/m:countTokens")
    assert decode_count(asked) == decode(request())[0]
