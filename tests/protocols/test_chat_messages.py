from __future__ import annotations

import base64
import hashlib

import pytest

from turnstile.conversation import Media, Message, Role, Text, ToolCall

T = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"p": "/a"}'}}
T_CALL = ToolCall("call_1", "ls", '{"p": "/a"}')
ABSENT = object()


@pytest.fixture
def message_of(call_of):
    def only(**fields):
        (message,) = call_of(messages=[{name: value for name, value in fields.items() if value is not ABSENT}]).messages
        return message

    return only


def texts(*pieces: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": piece} for piece in pieces]


@pytest.mark.parametrize("content", [None, "", ABSENT, [], texts(""), texts("", "")])
def test_case_c1_five_spellings_of_no_text_are_one_message(message_of, content):
    assert message_of(role="assistant", content=content, tool_calls=[T]) == Message(Role.ASSISTANT, calls=(T_CALL,))


@pytest.mark.parametrize("calls", [[], None, ABSENT])
def test_case_c1_no_calls_are_no_calls_in_every_spelling(message_of, calls):
    assert message_of(role="assistant", content="hi", tool_calls=calls) == Message(Role.ASSISTANT, (Text("hi"),))


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "R"},
        {"reasoning": "R"},
        {"reasoning_content": "R", "reasoning": "R"},
        {"reasoning_content": "", "reasoning": "R"},
        {"reasoning_content": None, "reasoning_details": [{"type": "reasoning.text", "text": "R", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "R"}, {"type": "reasoning.encrypted"}]},
    ],
)
def test_case_c2_reasoning_is_read_under_each_name_once(message_of, fields):
    expected = Message(Role.ASSISTANT, (Text("a"),), reasoning="R")
    assert message_of(role="assistant", content="a", **fields) == expected


@pytest.mark.parametrize("fields", [{}, {"reasoning_content": ""}, {"reasoning": None}, {"reasoning_details": []}])
def test_case_c2_no_reasoning_is_empty_in_every_spelling(message_of, fields):
    assert message_of(role="assistant", content="a", **fields) == Message(Role.ASSISTANT, (Text("a"),))


def test_case_c3_split_messages_are_kept_as_they_came(call_of):
    other = {**T, "id": "call_2"}
    sent = [
        {"role": "assistant", "content": "both", "tool_calls": [T]},
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "assistant", "content": "both", "tool_calls": [other]},
        {"role": "tool", "tool_call_id": "call_2", "content": "two"},
    ]
    assert call_of(messages=sent).messages == (
        Message(Role.ASSISTANT, (Text("both"),), calls=(T_CALL,)),
        Message(Role.TOOL, (Text("one"),), call_id="call_1"),
        Message(Role.ASSISTANT, (Text("both"),), calls=(ToolCall("call_2", "ls", '{"p": "/a"}'),)),
        Message(Role.TOOL, (Text("two"),), call_id="call_2"),
    )


@pytest.mark.parametrize(
    ("role", "read"),
    [("system", Role.SYSTEM), ("developer", Role.SYSTEM), ("user", Role.USER), ("assistant", Role.ASSISTANT)],
)
def test_each_role_is_read(message_of, role, read):
    assert message_of(role=role, content="x", name="n") == Message(read, (Text("x"),), name="n")


def test_several_text_parts_stay_apart(message_of):
    assert message_of(role="user", content=texts("a", "", "b")).parts == (Text("a"), Text(""), Text("b"))


def test_refusals_are_text_that_the_assistant_said(message_of):
    part = [{"type": "refusal", "refusal": "no"}]
    assert message_of(role="assistant", content=part) == Message(Role.ASSISTANT, (Text("no"),))
    assert message_of(role="assistant", content=None, refusal="no") == Message(Role.ASSISTANT, (Text("no"),))


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ({"p": "/a", "n": 1.0}, '{"p": "/a", "n": 1.0}'),
        ('{"b": 1,"a": 2}', '{"b": 1,"a": 2}'),
        ("not json {", "not json {"),
        ([1, 2], "[1, 2]"),
        (None, ""),
        (ABSENT, ""),
        ("", ""),
    ],
)
def test_arguments_are_kept_as_the_client_wrote_them(message_of, sent, read):
    function = {"name": "ls"} if sent is ABSENT else {"name": "ls", "arguments": sent}
    message = message_of(role="assistant", tool_calls=[{"id": "c", "type": "function", "function": function}])
    assert message.calls == (ToolCall("c", "ls", read),)


def test_a_call_without_type_and_id_is_a_function_call(message_of):
    message = message_of(role="assistant", tool_calls=[{"function": {"name": "ls", "arguments": "{}"}}])
    assert message.calls == (ToolCall("", "ls", "{}"),)


def test_the_legacy_function_form_is_a_call_and_its_answer(call_of):
    sent = [
        {"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": "{}"}},
        {"role": "function", "name": "ls", "content": "a.txt"},
    ]
    assert call_of(messages=sent).messages == (
        Message(Role.ASSISTANT, calls=(ToolCall("", "ls", "{}"),)),
        Message(Role.TOOL, (Text("a.txt"),), name="ls"),
    )


@pytest.mark.parametrize("kind", ["input_audio", "file", "video_url", "thinking"])
def test_a_part_that_is_neither_text_nor_image_is_refused_by_name(refusal_of, kind):
    content = [*texts("look"), {"type": kind, kind: {"url": "data:,"}}]
    assert refusal_of(messages=[{"role": "user", "content": content}]) == (
        400,
        "unsupported_value",
        "messages[0].content[1]",
        f"`messages[0].content[1]`: `{kind}` cannot be served, this version serves text and images only",
    )


@pytest.mark.parametrize(
    ("message", "param", "what"),
    [
        ({"content": "x"}, "messages[0].role", "expected a value, but it is missing"),
        ({"role": None}, "messages[0].role", "expected a string, got null"),
        ({"role": "user", "content": 3}, "messages[0].content", "expected a string or a list, got 3"),
        ({"role": "user", "content": ["a"]}, "messages[0].content[0]", 'expected an object, got "a"'),
        ({"role": "user", "content": [{"text": "a"}]}, "messages[0].content[0].type", None),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text", None),
        ({"role": "user", "content": texts(3)}, "messages[0].content[0].text", "expected a string, got 3"),
        ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls", "expected a list, got {}"),
        ({"role": "assistant", "tool_calls": [{"id": 3}]}, "messages[0].tool_calls[0].id", "expected a string, got 3"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "messages[0].tool_calls[0].function", None),
        (
            {"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]},
            "messages[0].tool_calls[0].function.name",
            "expected a value, but it is missing",
        ),
        ({"role": "tool", "tool_call_id": 7}, "messages[0].tool_call_id", "expected a string, got 7"),
    ],
)
def test_a_malformed_message_is_named_where_it_is_wrong(refusal_of, message, param, what):
    status, _, at, problem = refusal_of(messages=[message])
    assert (status, at) == (400, param)
    assert what is None or problem == f"`{param}`: {what}"


def test_an_unknown_role_is_named(refusal_of):
    _, _, param, problem = refusal_of(messages=[{"role": "user"}, {"role": "critic"}])
    assert param == "messages[1].role"
    assert problem.endswith('got "critic"')


def test_calls_on_another_message_than_an_assistants_are_refused(refusal_of):
    assert refusal_of(messages=[{"role": "user", "content": "x", "tool_calls": [T]}]) == (
        400,
        "invalid_value",
        "messages[0]",
        "`messages[0]`: a message with role `user` cannot hold calls",
    )


def test_custom_calls_and_audio_answers_are_refused_by_name(refusal_of):
    custom = {"id": "c", "type": "custom", "custom": {"name": "x", "input": "y"}}
    assert refusal_of(messages=[{"role": "assistant", "tool_calls": [custom]}])[1:3] == (
        "unsupported_value",
        "messages[0].tool_calls[0].type",
    )
    assert refusal_of(messages=[{"role": "assistant", "audio": {"id": "a"}}])[1:3] == (
        "unsupported_value",
        "messages[0].audio",
    )


def test_an_image_part_is_its_hash_and_its_bytes_stand_beside_the_messages(call_of):
    data = b"\x89PNG\r\n\x1a\n"
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    part = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    sent = [
        {"role": "user", "content": [*texts("look"), part]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url", "image_url": url}]},
    ]
    call = call_of(messages=sent)
    media = Media(hashlib.sha256(data).hexdigest(), "image/png", data)
    assert call.media == (media,)
    assert call.messages == (
        Message(Role.USER, (Text("look"), media.image)),
        Message(Role.TOOL, (media.image,), call_id="c"),
    )


def test_an_image_by_its_address_is_left_to_be_fetched_and_its_place_is_known(call_of):
    part = {"type": "image_url", "image_url": {"url": "http://h/a.png"}}
    (named,) = call_of(messages=[{"role": "user", "content": [part]}]).media
    assert (named.url, named.field, named.data) == ("http://h/a.png", "messages[0].content[0].image_url.url", b"")


def test_an_image_part_without_an_image_is_refused(refusal_of):
    assert refusal_of(messages=[{"role": "user", "content": [{"type": "image_url"}]}])[:3] == (
        400,
        "missing_required_parameter",
        "messages[0].content[0].image_url",
    )
