"""What one request may hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnstile.conversation import Call, Message, Role, ToolSpec
from turnstile.errors import CallerError
from turnstile.protocols.sizes import CallLimits, check_length, check_sizes

FEW = CallLimits(messages=3, parts=12, tools=2, tool_bytes=100)
PADDING = "x" * (1 << 20)
DIALECT_LISTS = pytest.mark.parametrize("name", ["messages", "input", "contents"])


def call(messages: int = 1, *declarations: str) -> Call:
    tools = tuple(ToolSpec(f"t{at}", declaration) for at, declaration in enumerate(declarations))
    return Call("openai.chat", "m", tuple(Message(Role.USER) for _ in range(messages)), tools)


def long_body(**fields: Any) -> bytes:
    return json.dumps({"padding": PADDING, **fields}).encode()


def refusal_of(sent: Call | bytes) -> tuple[str, str, int, str] | None:
    try:
        if isinstance(sent, Call):
            check_sizes(sent, FEW)
        else:
            check_length(sent, FEW)
    except CallerError as error:
        return str(error), error.code, error.status, error.param
    return None


TOO_MANY_MESSAGES = (
    "The request has 4 messages, and 3 is the most. Send fewer, or raise --max-messages.",
    "too_many_messages", 400, "",
)  # fmt: skip
TOO_MANY_TOOLS = (
    "The request has 3 tools, and 2 is the most. Send fewer, or raise --max-tools.",
    "too_many_tools", 400, "tools",
)  # fmt: skip


def test_as_much_as_may_be_passes() -> None:
    assert refusal_of(call(3, '"' + "a" * 48 + '"', '"' + "b" * 48 + '"')) is None


def test_too_many_messages_are_refused_with_their_number() -> None:
    assert refusal_of(call(4)) == TOO_MANY_MESSAGES


def test_too_many_tools_are_refused_with_their_number() -> None:
    assert refusal_of(call(1, "{}", "{}", "{}")) == TOO_MANY_TOOLS


@pytest.mark.parametrize("letter", ["a" * 51, "é" * 26], ids=["ascii", "in bytes, not in characters"])
def test_tools_that_are_too_large_together_are_413(letter: str) -> None:
    refused = refusal_of(call(1, f'"{letter}"', '"' + "b" * 46 + '"'))
    length = len(letter.encode()) + 2 + 48
    assert refused == (
        f"The tools take {length} bytes, and 100 is the most. Send fewer or shorter tools, or raise --max-tools-kb.",
        "tools_too_large",
        413,
        "tools",
    )


@DIALECT_LISTS
def test_a_long_body_with_too_many_messages_is_refused_before_they_are_read(name: str) -> None:
    assert refusal_of(long_body(**{name: [{}] * 4})) == TOO_MANY_MESSAGES
    assert refusal_of(long_body(**{name: [{}] * 3, "other": {}})) is None


def test_a_long_body_with_too_many_tools_is_refused_before_they_are_read() -> None:
    assert refusal_of(long_body(tools=[{}] * 3)) == TOO_MANY_TOOLS


@pytest.mark.parametrize(
    "body",
    [
        long_body(messages=[{}] * 4)[:-1],
        long_body(input="text", other=[{}] * 9),
        long_body(messages={"a": [{}] * 9}),
        b"[" * 2_000_000 + b"{" * 9,
        b"{" * 2_000_000,
        b'{"messages": [{}, {}, {}, {}]}',
    ],
    ids=["no JSON", "a text", "an object", "lists", "objects", "short"],
)
def test_a_body_that_is_no_list_of_messages_is_left_to_whoever_reads_it(body: bytes) -> None:
    assert refusal_of(body) is None


def test_a_body_that_holds_a_list_longer_than_the_limit_is_not_taken_for_messages_in_it() -> None:
    assert refusal_of(long_body(messages=[{"content": [{}] * 9}])) is None


TOO_MANY_PARTS = (
    "The messages of the request have more than 12 parts together. Send fewer, or raise --max-parts.",
    "too_many_parts", 400, "",
)  # fmt: skip
BLOCK = {"type": "text", "text": "a"}
PARTS_OF_A_BODY = {
    "content": lambda blocks: {"messages": [{"role": "user", "content": blocks}]},
    "calls": lambda blocks: {"messages": [{"role": "user", "content": "a"}, {"tool_calls": blocks}]},
    "input": lambda blocks: {"input": [{"type": "function_call_output", "output": blocks}]},
    "a tool's result": lambda blocks: {"messages": [{"content": [{"type": "tool_result", "content": blocks}]}]},
    "contents": lambda blocks: {"contents": [{"parts": blocks}]},
    "system": lambda blocks: {"system": blocks},
    "systemInstruction": lambda blocks: {"systemInstruction": {"parts": blocks}},
}


@pytest.mark.parametrize("place", PARTS_OF_A_BODY)
@pytest.mark.parametrize("indent", [None, 2], ids=["dense", "spaced"])
def test_too_many_parts_are_refused_before_they_are_read_wherever_a_dialect_has_them(
    place: str, indent: int | None
) -> None:
    of = PARTS_OF_A_BODY[place]
    most = 11 if place == "a tool's result" else 12
    assert refusal_of(json.dumps(of([BLOCK] * most), indent=indent).encode()) is None
    assert refusal_of(json.dumps(of([BLOCK] * (most + 1)), indent=indent).encode()) == TOO_MANY_PARTS


def test_parts_of_all_messages_count_together() -> None:
    messages = [{"content": [BLOCK] * 5}] * 2
    assert refusal_of(json.dumps({"messages": [*messages, {"content": [BLOCK] * 2}]}).encode()) is None
    assert refusal_of(json.dumps({"messages": [*messages, {"content": [BLOCK] * 3}]}).encode()) == TOO_MANY_PARTS


def test_entries_of_a_bias_count_as_parts() -> None:
    assert refusal_of(json.dumps({"messages": [], "logit_bias": {str(id): 1 for id in range(12)}}).encode()) is None
    biased = json.dumps({"messages": [], "logit_bias": {str(id): 1 for id in range(13)}}).encode()
    assert refusal_of(biased) == TOO_MANY_PARTS


def test_what_a_call_is_given_is_no_part() -> None:
    given = {"files": [BLOCK] * 40}
    assert refusal_of(json.dumps({"messages": [{"content": [{"type": "tool_use", "input": given}]}]}).encode()) is None
    assert refusal_of(json.dumps({"messages": [{"content": json.dumps([BLOCK] * 40)}]}).encode()) is None


def test_members_that_no_dialect_knows_are_counted_and_long_texts_are_not() -> None:
    members = {f"m{at}": 1 for at in range(12)}
    assert refusal_of(json.dumps({"instructions": "a: " * 99, "input": ":" * 99, **members}).encode()) == (
        "The request has more than 12 members beside its messages and tools. Send fewer, or raise --max-parts.",
        "too_many_parts", 400, "",
    )  # fmt: skip
    del members["m0"], members["m1"]
    assert refusal_of(json.dumps({"instructions": "a: " * 99, "input": ":" * 99, **members}).encode()) is None
