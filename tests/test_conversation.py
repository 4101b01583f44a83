"""Messages without a dialect."""

from __future__ import annotations

from turnstile.conversation import Message, ReplyDelta, Role, Text, ToolCallDelta


def test_the_text_of_a_message_is_its_parts_without_a_separator() -> None:
    assert Message(Role.USER, (Text("a"), Text("b"))).text == "ab"


def test_absent_null_and_empty_are_one_value() -> None:
    assert Message(Role.ASSISTANT) == Message(Role.ASSISTANT, (), "", (), "", "")


def test_a_delta_is_empty_only_if_there_is_nothing_to_tell() -> None:
    assert ReplyDelta(choice=1).is_empty
    assert not ReplyDelta(content=" ").is_empty
    assert not ReplyDelta(calls=(ToolCallDelta(0),)).is_empty
