from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.errors import CallerError
from turnstile.protocols.anthropic import ANTHROPIC, ANTHROPIC_COUNTER
from turnstile.protocols.base import AnswerHead, WireRequest


def test_a_request_comes_with_the_way_to_answer_it(messages_request):
    decoded = ANTHROPIC.decode(messages_request(stream=True))
    assert decoded.call.dialect == ANTHROPIC.name == "anthropic.messages"
    assert decoded.answer_with(AnswerHead("r-c1", 0, "m")).media_type.startswith("text/event-stream")


def test_a_count_is_answered_with_a_number(messages_request):
    question = ANTHROPIC_COUNTER.decode(messages_request(max_tokens=...))
    assert json.loads(question.body_of(17)) == {"input_tokens": 17}


def test_refusals_are_in_the_dialects_shape():
    error = CallerError("No", "Do", status=404)
    assert json.loads(ANTHROPIC.refuse(error))["error"]["type"] == "not_found_error"
    assert ANTHROPIC_COUNTER.refuse(error) == ANTHROPIC.refuse(error)


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.sampled_from(
        [
            "user",
            "assistant",
            "system",
            "text",
            "image",
            "tool_use",
            "tool_result",
            "thinking",
            "base64",
            "auto",
            "tool",
        ]
    )
)
names = st.sampled_from(
    [
        "role", "content", "type", "text", "source", "data", "media_type", "thinking", "signature", "id", "name",
        "input", "tool_use_id", "is_error", "input_schema", "schema", "format", "effort", "budget_tokens", "tool_name",
    ]
)  # fmt: skip
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5), max_leaves=12
)
OPTIONAL = (
    "system", "tools", "tool_choice", "thinking", "output_config", "output_format", "stop_sequences", "temperature",
    "top_p", "top_k", "stream", "metadata", "container", "context_management",
)  # fmt: skip
fields = st.fixed_dictionaries(
    {"model": st.just("m") | leaves, "messages": st.lists(anything, max_size=3) | anything, "max_tokens": st.just(9)},
    optional=dict.fromkeys(OPTIONAL, anything),
)


@settings(deadline=None, max_examples=400)
@given(fields)
@pytest.mark.parametrize("door", [ANTHROPIC, ANTHROPIC_COUNTER], ids=["call", "count"])
def test_any_json_is_understood_or_refused_with_a_remedy_always(door, body):
    try:
        door.decode(WireRequest(json.dumps(body).encode(), {}))
    except CallerError as refused:
        assert (refused.status, bool(refused.remedy)) == (400, True)
