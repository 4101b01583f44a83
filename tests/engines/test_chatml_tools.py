from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.engines import tools_template
from turnstile.templates.render import RenderRequest, Template

TOOL = '{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}'


def said(role, text="", **more):
    return Message(role, (Text(text),) if text else (), **more)


def called(name, arguments):
    return ToolCall("call_1", name, arguments)


@pytest.fixture
def rendered():
    template = Template(tools_template(), {})

    def _rendered(*messages, tools=()):
        return template.render(RenderRequest(messages=messages, tools=tools, now=datetime(2026, 1, 1, tzinfo=UTC)))

    return _rendered


def test_without_tools_it_is_plain_chatml(rendered):
    assert rendered(said(Role.SYSTEM, "Be brief."), said(Role.USER, "Hi")) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_tools_stand_in_the_system_message_in_the_hermes_form(rendered):
    text = rendered(said(Role.SYSTEM, "Be brief."), said(Role.USER, "Hi"), tools=(TOOL,))
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    assert f"<tools>\n{TOOL}\n</tools>" in text
    assert text.count("<|im_start|>system") == 1


def test_calls_and_their_results_are_written_as_hermes_models_write_and_read_them(rendered):
    text = rendered(
        said(Role.USER, "List."),
        said(Role.ASSISTANT, "Both.", calls=(called("ls", '{"p": "/a"}'), called("ls", '{"p": "/b"}'))),
        said(Role.TOOL, "one", call_id="call_1"),
        said(Role.TOOL, "two", call_id="call_2"),
        tools=(TOOL,),
    )
    assert text.endswith(
        "<|im_start|>user\nList.<|im_end|>\n<|im_start|>assistant\nBoth.\n"
        '<tool_call>\n{"name": "ls", "arguments": {"p": "/a"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "ls", "arguments": {"p": "/b"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_longer_conversation_begins_with_the_shorter_one(rendered):
    opening = (said(Role.USER, "List."), said(Role.ASSISTANT, "Sure.", reasoning="Easy."))
    shorter = rendered(*opening, said(Role.USER, "Go."), tools=(TOOL,))
    longer = rendered(*opening, said(Role.USER, "Go."), said(Role.ASSISTANT, "Gone."), tools=(TOOL,))
    assert longer.startswith(shorter)


def test_a_late_system_message_stays_where_it_was_said(rendered):
    text = rendered(said(Role.USER, "Hi"), said(Role.SYSTEM, "Now in French."))
    assert text.endswith(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>system\nNow in French.<|im_end|>\n<|im_start|>assistant\n"
    )
