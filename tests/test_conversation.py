"""Messages without a dialect."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnstile.conversation import Image, Message, Past, ReplyDelta, Role, Text, ToolCall, ToolCallDelta, kind_of

IMAGE = Image("00" * 32, "image/png")
messages = st.builds(
    Message,
    st.sampled_from(Role),
    st.lists(st.sampled_from((Text("a"), IMAGE)), max_size=3).map(tuple),
    calls=st.lists(st.just(ToolCall("c", "ls", "{}")), max_size=2).map(tuple),
)


def test_the_text_of_a_message_is_its_parts_without_a_separator() -> None:
    assert Message(Role.USER, (Text("a"), Text("b"))).text == "ab"


def test_absent_null_and_empty_are_one_value() -> None:
    assert Message(Role.ASSISTANT) == Message(Role.ASSISTANT, (), "", (), "", "")


def test_the_kind_of_a_message_says_its_role_its_images_its_calls_and_text_beside_them() -> None:
    call = ToolCall("c", "ls", "{}")
    shown = (
        Message(Role.TOOL),
        Message(Role.USER, (Text("a"), Text("b"))),
        Message(Role.USER, (Text("a"), IMAGE)),
        Message(Role.ASSISTANT, calls=(call,)),
        Message(Role.ASSISTANT, (IMAGE,), calls=(call, call)),
    )
    assert [kind_of(message) for message in shown] == [
        "tool",
        "user",
        "user+media",
        "assistant+call",
        "assistant+media+calls+text",
    ]


def test_a_past_says_which_kinds_follow_each_other_and_where_images_are() -> None:
    asked, shown = Message(Role.USER, (Text("a"),)), Message(Role.USER, (IMAGE, Text("b"), IMAGE))
    assert Past().then((asked, Message(Role.ASSISTANT), shown)) == Past(
        last="user+media",
        neighbours=frozenset({("^", "user"), ("user", "assistant"), ("assistant", "user+media")}),
        images=2,
        image_roles=frozenset({Role.USER}),
    )


@given(st.lists(messages, max_size=12), st.integers(0, 12))
def test_a_past_that_went_on_is_that_of_all_messages(said: list[Message], at: int) -> None:
    assert Past().then(said[:at]).then(said[at:]) == Past().then(said)


def test_a_delta_is_empty_only_if_there_is_nothing_to_tell() -> None:
    assert ReplyDelta(choice=1).is_empty
    assert not ReplyDelta(content=" ").is_empty
    assert not ReplyDelta(calls=(ToolCallDelta(0),)).is_empty
