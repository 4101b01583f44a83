from __future__ import annotations

import pytest

from turnstile.conversation import Image, Message, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.trajectory.chat_shape import Shelf, chat_message, shown_parts, without_images


def test_an_answer_with_a_call_has_no_content_and_keeps_its_arguments_as_written():
    message = Message(Role.ASSISTANT, reasoning="hm", calls=(ToolCall("t1", "add", '{"a": 2,"b":'),))
    assert chat_message(message) == {
        "role": "assistant",
        "reasoning_content": "hm",
        "content": None,
        "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2,"b":'}}],
    }


def test_a_tool_message_names_its_call():
    message = Message(Role.TOOL, (Text("4"),), call_id="t1", name="add")
    assert chat_message(message) == {"role": "tool", "name": "add", "tool_call_id": "t1", "content": "4"}


def test_several_texts_stay_apart():
    shaped = chat_message(Message(Role.USER, (Text("a"), Text("b"))))
    assert shaped["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_an_image_is_named_by_the_hash_of_its_bytes():
    image = {"type": "image", "sha256": "ab" * 32, "media_type": "image/png"}
    shown = Image("ab" * 32, "image/png")
    assert chat_message(Message(Role.USER, (Text("a"), shown)))["content"] == [{"type": "text", "text": "a"}, image]
    assert chat_message(Message(Role.ASSISTANT, (shown,)))["content"] == [image]


def test_equal_messages_and_tool_lists_have_one_index():
    shelf = Shelf()
    message = Message(Role.USER, (Text("a"),))
    assert [shelf.message(message), shelf.message(Message(Role.USER)), shelf.message(message)] == [0, 1, 0]
    assert [shelf.tools(('{"a":1}',)), shelf.tools(()), shelf.tools(('{"a":1}',))] == [0, None, 0]
    assert shelf.tool_lists == (({"a": 1},),)
    assert shelf.messages == ({"role": "user", "content": "a"}, {"role": "user", "content": ""})


def test_the_parts_of_a_message_with_an_image_are_read_back():
    message = Message(Role.USER, (Text("a"), Image("ab" * 32, "image/png"), Text("b")))
    shaped = chat_message(message)
    assert shown_parts(shaped) == message.parts
    assert without_images(shaped) == {"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]}
    assert shown_parts(chat_message(Message(Role.USER, (Text("a"), Text("b"))))) == ()
    assert shown_parts({"role": "user", "content": "a"}) == ()


def test_a_message_whose_image_has_no_hash_is_none():
    with pytest.raises(CallerError, match="cannot be read"):
        shown_parts({"role": "user", "content": [{"type": "image"}]})
