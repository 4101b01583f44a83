"""Any JSON at all, sent as a Responses request: an answer or a refusal in the dialect's shape, never a fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

WORDS = st.sampled_from(
    ["", "hi", "auto", "none", "required", "function", "custom", "message", "reasoning", "function_call",
     "function_call_output", "custom_tool_call", "custom_tool_call_output", "item_reference", "input_text",
     "output_text", "input_image", "summary_text", "user", "assistant", "developer", "text", "json_schema",
     "json_object", "allowed_tools", "namespace", "web_search", "grammar", "resp_r-c0", "msg_r-c0-0", "ls",
     "reasoning.encrypted_content", "message.output_text.logprobs", "disabled", "data:image/png;base64,AAAA",
     "\N{DUCK}", "<|im_end|>"]
)  # fmt: skip
LEAVES = st.none() | st.booleans() | st.integers(-3, 40) | st.floats(-1, 3) | WORDS | st.text(max_size=4)
NAMES = st.sampled_from(
    ["type", "role", "content", "text", "id", "call_id", "name", "arguments", "input", "output", "summary",
     "encrypted_content", "namespace", "tools", "parameters", "properties", "format", "schema", "mode", "definition",
     "image_url", "strict", "effort", "x"]
)  # fmt: skip
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5), max_leaves=12
)

GOOD_ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"role": "assistant", "content": [{"type": "output_text", "text": "Hi", "annotations": []}], "id": "msg_r-c0-0"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "R"}], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "custom_tool_call", "call_id": "c", "name": "ls", "input": "x", "namespace": "n"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
    {"type": "item_reference", "id": "msg_r-c0-0"},
]
GOOD_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}, "strict": True},
    {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
    {"type": "namespace", "name": "n", "description": "d", "tools": [{"type": "function", "name": "ls"}]},
]
GOOD_FIELDS: dict[str, list[Any]] = {
    "instructions": ["I"], "previous_response_id": ["resp_r-c0"], "store": [True, False], "stream": [True, False],
    "include": [[], ["reasoning.encrypted_content", "message.output_text.logprobs"]],
    "tool_choice": ["auto", "none", {"type": "allowed_tools", "mode": "auto", "tools": []}],
    "parallel_tool_calls": [True, False], "text": [{"format": {"type": "text"}}, {"format": {"type": "json_object"}}],
    "reasoning": [{"effort": "low", "summary": "auto"}], "max_output_tokens": [1, 16], "temperature": [0, 0.5],
    "top_logprobs": [0, 1], "metadata": [{"a": "b"}], "truncation": ["disabled"], "background": [False],
    "stop": ["x", ["x", "y"]], "seed": [1], "top_k": [-1, 3], "chat_template_kwargs": [{"a": [1]}], "x": [1],
}  # fmt: skip


def changed(good: list[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Something that is well formed, or has one member of another value."""
    whole = st.sampled_from(good)
    return whole | whole.flatmap(lambda each: st.builds(lambda name, new: {**each, name: new}, NAMES, JSON))


ITEMS = changed(GOOD_ITEMS)
TOOLS = st.lists(changed(GOOD_TOOLS), max_size=2)
INPUT = st.lists(st.sampled_from(GOOD_ITEMS[:8]), min_size=1, max_size=4) | st.lists(ITEMS, max_size=3)
FIELDS = st.builds(
    lambda good, bad: {**good, **bad},
    st.fixed_dictionaries(
        {}, optional={"input": INPUT, "tools": TOOLS, **{name: st.sampled_from(of) for name, of in GOOD_FIELDS.items()}}
    ),
    st.just({}) | st.dictionaries(st.sampled_from(sorted(GOOD_FIELDS)), JSON, min_size=1, max_size=1),
)


@pytest.fixture
def room(wired: Callable[..., Any]) -> Any:
    return wired("qwen3")


def check(room: Any, agent: Any, sent: bytes) -> None:
    said = agent.post(sent)
    try:
        if said.status == 200:
            last = said.events[-1]["response"] if said.is_stream else said.json
            assert last["status"] in {"completed", "incomplete"}
        else:
            assert 400 <= said.status < 500, said.body
            assert said.error.keys() == {"message", "type", "param", "code"}
            assert said.error["type"] == "invalid_request_error"
            assert said.error["message"].endswith((".", "!", "?"))
    finally:
        room.fake.forget()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fields=FIELDS)
def test_any_fields_are_answered_or_refused_in_the_dialects_shape(
    room: Any, responding: Any, fields: dict[str, Any]
) -> None:
    agent = responding.Responder(room.agent()).agent
    room.script("ok<|im_end|>")
    check(room, agent, json.dumps({"model": "m", "input": "hi", **fields}).encode())


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(items=st.lists(ITEMS, min_size=1, max_size=6), stream=st.booleans())
def test_any_items_are_answered_or_refused_in_the_dialects_shape(
    room: Any, responding: Any, items: list[dict[str, Any]], stream: bool
) -> None:
    agent = responding.Responder(room.agent()).agent
    room.script("ok<|im_end|>")
    check(room, agent, json.dumps({"model": "m", "input": items, "stream": stream}).encode())


def test_a_rollout_goes_on_behind_all_of_it(room: Any, responding: Any) -> None:
    responder = responding.Responder(room.agent())
    room.script("A<|im_end|>", "B<|im_end|>")
    first = responder.say("q")
    refused = [responder.say({"role": "robot"}), responder.say("x", background=True), responder.agent.post(b"[")]
    second = responder.say("q", *responding.items(first), "more")
    assert [each.status for each in refused] == [400, 400, 400]
    assert second.history == "spliced"
    assert responder.agent.summary["failed_calls"] == {"refused": 3}
