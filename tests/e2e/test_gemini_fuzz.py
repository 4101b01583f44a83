"""Any JSON body on Google's paths: no 500, and every refusal in Google's shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FEW = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TEXTS = st.sampled_from(["", "hi", " \n", "<|im_end|>", "<think>", "\x00", "\u2028", "é\N{DUCK}", "</tool_call>"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | TEXTS
WORDS = st.sampled_from(["a", "b", "output", "error", ""])
MEMBERS = st.dictionaries(WORDS, SCALARS, max_size=2)

texts = st.fixed_dictionaries(
    {"text": TEXTS | SCALARS}, optional={"thought": st.booleans(), "thoughtSignature": TEXTS | st.just("c2ln")}
)
calls = st.fixed_dictionaries(
    {
        "functionCall": st.fixed_dictionaries(
            {"name": st.sampled_from(["ls", "cd"])}, optional={"args": MEMBERS, "id": WORDS}
        )
    }
)
results = st.fixed_dictionaries(
    {
        "functionResponse": st.fixed_dictionaries(
            {"name": st.sampled_from(["ls", "cd", "zz"])}, optional={"response": MEMBERS | SCALARS, "id": WORDS}
        )
    }
)
odd = st.sampled_from([{}, {"fileData": {}}, {"inlineData": {"data": "AAAA"}}, {"executableCode": {"code": "x"}}])
contents = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "model", "function", "tool", None]),
        "parts": st.lists(st.one_of(texts, calls, results, odd), max_size=3) | SCALARS,
    }
)
tools = st.fixed_dictionaries(
    {"name": st.sampled_from(["ls", "cd", ""])},
    optional={
        "parameters": st.sampled_from([{}, {"type": "OBJECT"}, {"type": 7}, [], {"properties": {"p": True}}]),
        "parametersJsonSchema": st.sampled_from([{"type": "object"}, 3]),
        "description": TEXTS,
    },
)
configs = st.fixed_dictionaries(
    {"maxOutputTokens": st.integers(1, 4)},
    optional={
        "temperature": st.sampled_from([0, 1, 5]),
        "topK": st.sampled_from([1, 2.0, 0.5]),
        "candidateCount": st.integers(0, 2),
        "stopSequences": st.lists(TEXTS, max_size=2),
        "responseMimeType": st.sampled_from(["application/json", "text/plain", "text/x.enum"]),
        "responseSchema": st.sampled_from([{"type": "OBJECT"}, {"type": "STRING", "enum": ["a"]}, {"type": "WHAT"}]),
        "responseLogprobs": st.booleans(),
        "thinkingConfig": st.sampled_from([{"thinkingBudget": 0}, {"thinkingLevel": "LOW"}, {"includeThoughts": True}]),
    },
)
bodies = st.fixed_dictionaries(
    {"contents": st.lists(contents, min_size=1, max_size=4), "generationConfig": configs},
    optional={
        "systemInstruction": contents | SCALARS,
        "tools": st.lists(st.fixed_dictionaries({"functionDeclarations": st.lists(tools, max_size=2)}), max_size=2),
        "toolConfig": st.fixed_dictionaries(
            {"functionCallingConfig": st.fixed_dictionaries({"mode": st.sampled_from(["AUTO", "ANY", "NONE", "X"])})}
        ),
    },
)


def well_formed(answer: Any) -> bool:
    """Whether it is an answer, a whole stream, a count, or an error in Google's shape."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        return '"finishReason"' in answer.text.split("\n\n")[-2]
    body = answer.json()
    if answer.status_code == 200:
        last = body[-1] if isinstance(body, list) else body
        return "usageMetadata" in last or "totalTokens" in last
    error = body["error"]
    return error["code"] == answer.status_code and error["status"] == "INVALID_ARGUMENT" and bool(error["message"])


@pytest.mark.parametrize(
    "method", ["generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent", "countTokens"]
)
@FEW
@given(body=bodies)
def test_a_body_is_answered_or_refused_in_the_dialects_shape_always(
    wired: Callable[..., Any], method: str, body: Any
) -> None:
    room = wired("qwen3")
    answer = room.http.post(f"{room.client.url}/r/fuzz/v1beta/models/m:{method}", content=json.dumps(body))
    assert answer.status_code in (200, 400), answer.text
    assert well_formed(answer), answer.text
