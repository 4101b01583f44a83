from __future__ import annotations

import pytest

from turnstile.conversation import Message, Reply, ReplyFinish, Role, ToolCall, Usage
from turnstile.protocols.anthropic_answer import WireStop, WireUsage, stop_of, usage_of


@pytest.mark.parametrize(
    ("usage", "wire"),
    [
        (Usage(11, 5), WireUsage(11, 5, 0, 0)),
        (Usage(11, 5, 8), WireUsage(3, 5, 0, 8)),
        (Usage(11, 5, 11), WireUsage(0, 5, 0, 11)),
    ],
)
def test_what_came_from_the_cache_is_counted_apart_and_the_sum_is_the_prompt(usage, wire):
    assert usage_of(usage) == wire
    assert wire.input_tokens + wire.cache_read_input_tokens == usage.prompt_tokens


@pytest.mark.parametrize(
    ("finish", "calls", "stop_string", "stop"),
    [
        (ReplyFinish.STOP, (), "", WireStop("end_turn", None)),
        (ReplyFinish.STOP, (), "END", WireStop("stop_sequence", "END")),
        (ReplyFinish.TOOL_CALLS, (), "", WireStop("tool_use", None)),
        (ReplyFinish.STOP, (ToolCall("a", "ls", "{}"),), "", WireStop("tool_use", None)),
        (ReplyFinish.TOOL_CALLS, (ToolCall("a", "ls", "{}"),), "END", WireStop("stop_sequence", "END")),
        (ReplyFinish.LENGTH, (ToolCall("a", "ls", "{}"),), "", WireStop("max_tokens", None)),
    ],
)
def test_an_answer_ends_for_one_reason(finish, calls, stop_string, stop):
    message = Message(Role.ASSISTANT, calls=calls)
    assert stop_of(Reply(message, finish, stop_string=stop_string)) == stop
