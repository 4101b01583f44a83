"""Any JSON body on Anthropic's paths: no 500, and every refusal in Anthropic's shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

FEW = settings(
    deadline=None, max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
TEXTS = st.sampled_from(["", "hi", " \n", "<|im_end|>", "<think>", "\x00", "\u2028", "é\N{DUCK}", "</tool_call>"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | TEXTS
WORDS = st.sampled_from(["a", "b", ""])

texts = st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS | SCALARS})
thinking = st.fixed_dictionaries({"type": st.just("thinking"), "thinking": TEXTS, "signature": TEXTS})
calls = st.fixed_dictionaries(
    {"type": st.just("tool_use"), "id": WORDS, "name": st.sampled_from(["ls", "cd"])},
    optional={"input": st.dictionaries(WORDS, SCALARS, max_size=2) | SCALARS},
)
results = st.fixed_dictionaries(
    {"type": st.just("tool_result"), "tool_use_id": WORDS},
    optional={"content": TEXTS | st.lists(texts, max_size=2) | SCALARS, "is_error": st.booleans()},
)
odd = st.fixed_dictionaries({"type": st.sampled_from(["image", "document", "server_tool_use", "what", ""])})
messages = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool"]),
        "content": TEXTS | st.lists(st.one_of(texts, thinking, calls, results, odd), max_size=3) | SCALARS,
    }
)
tools = st.fixed_dictionaries(
    {"name": st.sampled_from(["ls", "cd", ""])},
    optional={
        "input_schema": st.sampled_from([{}, {"type": "object"}, {"type": 7}, [], {"properties": {"p": True}}]),
        "type": st.sampled_from(["custom", "bash_20250124", "web_search_20250305"]),
        "description": TEXTS,
    },
)
choices = st.fixed_dictionaries(
    {"type": st.sampled_from(["auto", "any", "tool", "none", "x"])}, optional={"name": st.sampled_from(["ls", "zz"])}
)
bodies = st.fixed_dictionaries(
    {"model": st.just("m"), "max_tokens": st.integers(1, 4), "messages": st.lists(messages, min_size=1, max_size=4)},
    optional={
        "system": TEXTS | st.lists(texts, max_size=2) | SCALARS,
        "tools": st.lists(tools, max_size=2),
        "tool_choice": choices,
        "thinking": st.fixed_dictionaries({"type": st.sampled_from(["enabled", "disabled", "adaptive", "x"])}),
        "stop_sequences": st.lists(TEXTS, max_size=2),
        "temperature": st.sampled_from([0, 1, 5]),
        "stream": st.booleans(),
        "output_format": st.just({"type": "json_schema", "schema": {"type": "object"}}),
    },
)


def well_formed(answer: Any) -> bool:
    """Whether it is a message, a whole stream, or an error in Anthropic's shape."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        return answer.content.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    body = answer.json()
    if answer.status_code == 200:
        return body.get("type") == "message" or "input_tokens" in body
    error = body["error"]
    return (body["type"], sorted(error)) == ("error", ["message", "type"]) and error["type"].endswith("error")


@FEW
@given(body=bodies)
def test_a_call_is_answered_or_refused_in_the_dialects_shape_always(wired: Callable[..., Any], body: Any) -> None:
    room = wired("qwen3")
    answer = room.http.post(
        f"{room.client.url}/r/fuzz/v1/messages", content=json.dumps(body), headers={"x-api-key": "k"}
    )
    assert answer.status_code in (200, 400), answer.text
    assert well_formed(answer), answer.text


@FEW
@given(body=bodies)
def test_a_count_is_answered_or_refused_in_the_dialects_shape_always(wired: Callable[..., Any], body: Any) -> None:
    room = wired("qwen3")
    url = f"{room.client.url}/r/fuzz/v1/messages/count_tokens"
    answer = room.http.post(url, content=json.dumps(body), headers={"x-api-key": "k"})
    assert answer.status_code in (200, 400), answer.text
    assert well_formed(answer), answer.text
