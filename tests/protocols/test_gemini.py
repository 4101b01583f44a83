from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.errors import CallerError
from turnstile.protocols.base import AnswerHead, WireRequest
from turnstile.protocols.gemini import GEMINI, GEMINI_COUNTER

BODY = b'{"contents": [{"parts": [{"text": "hi"}]}]}'


def test_a_request_comes_with_the_way_to_answer_it():
    decoded = GEMINI.decode(WireRequest(BODY, {}, "/v1beta/models/m:streamGenerateContent", {"alt": "sse"}))
    assert decoded.call.dialect == GEMINI.name == "google.gemini"
    assert decoded.answer_with(AnswerHead("r-c1", 0, "m")).media_type.startswith("text/event-stream")


def test_a_count_is_answered_with_a_number():
    question = GEMINI_COUNTER.decode(WireRequest(BODY, {}, "/v1beta/models/m:countTokens"))
    assert json.loads(question.body_of(17)) == {"totalTokens": 17}


def test_refusals_are_in_the_dialects_shape():
    error = CallerError("No", "Do", status=404)
    assert json.loads(GEMINI.refuse(error))["error"]["status"] == "NOT_FOUND"
    assert GEMINI_COUNTER.refuse(error) == GEMINI.refuse(error)


names = st.sampled_from(
    [
        "role", "parts", "text", "thought", "thoughtSignature", "inlineData", "inline_data", "mimeType", "data",
        "functionCall", "functionResponse", "name", "args", "response", "output", "error", "id", "fileData",
        "functionDeclarations", "parameters", "type", "properties", "anyOf", "nullable", "mode", "googleSearch",
        "allowedFunctionNames", "functionCallingConfig", "thinkingConfig", "topK", "responseSchema", "stopSequences",
    ]
)  # fmt: skip
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(
    ["user", "model", "function", "ANY", "OBJECT", "image/png", "f", "", "AAAA"]
)  # fmt: skip
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)
tops = st.dictionaries(
    st.sampled_from(
        [
            "contents",
            "systemInstruction",
            "system_instruction",
            "tools",
            "toolConfig",
            "generationConfig",
            "cachedContent",
        ]
    ),
    anything,
    max_size=4,
)


@settings(deadline=None, max_examples=300)
@given(tops, anything)
def test_any_json_is_understood_or_refused_by_name(body, contents):
    sent = json.dumps({"contents": contents, **body}).encode()
    for door in (GEMINI, GEMINI_COUNTER):
        try:
            door.decode(WireRequest(sent, {}, "/v1beta/models/m:generateContent"))
        except CallerError as error:
            assert error.problem and error.remedy and 400 <= error.status < 500
