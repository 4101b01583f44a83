from __future__ import annotations

import base64
import hashlib
import json

import pytest

from turnstile.conversation import Image, Media, Message, Role, Text, ToolCall
from turnstile.protocols.object_arguments import ODD_ARGUMENTS
from turnstile.protocols.signature import signature_of

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 8
IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()},
}


def text(said: str, **more) -> dict:
    return {"type": "text", "text": said, **more}


def user(content) -> dict:
    return {"role": "user", "content": content}


def result(call_id: str, content=None, **more) -> dict:
    block = {"type": "tool_result", "tool_use_id": call_id, **more}
    return block if content is None else {**block, "content": content}


@pytest.fixture
def read(messages_call):
    """The conversation's messages of a request with these."""
    return lambda *messages, **fields: messages_call(messages=list(messages), **fields).messages


@pytest.mark.parametrize("content", ["Go", [text("Go")], [text("Go", cache_control={"type": "ephemeral"})]])
def test_a_string_is_one_text_block_and_a_cache_mark_is_nothing(read, content):
    assert read(user(content)) == (Message(Role.USER, (Text("Go"),)),)


@pytest.mark.parametrize("content", ["", [], [text("")], [text(""), text("")]])
def test_nothing_said_in_any_spelling_is_nothing(read, content):
    assert read(user(content)) == (Message(Role.USER),)


@pytest.mark.parametrize("system", ["Be brief.", [text("Be brief.")]])
def test_the_system_prompt_is_the_first_message(read, system):
    assert read(user("Go"), system=system)[0] == Message(Role.SYSTEM, (Text("Be brief."),))


def test_system_blocks_stay_apart(read):
    said = read(user("Go"), system=[text("a"), text("b", cache_control={"type": "ephemeral"})])
    assert said[0].parts == (Text("a"), Text("b"))


@pytest.mark.parametrize("system", ["", [], None, [text("")]])
def test_an_empty_system_prompt_is_none(read, system):
    assert [message.role for message in read(user("Go"), system=system)] == [Role.USER]


def test_a_system_message_may_stand_anywhere(read):
    said = read(user("Go"), {"role": "system", "content": "Mind the gap.", "output_config": {"effort": "low"}})
    assert said[1] == Message(Role.SYSTEM, (Text("Mind the gap."),))


def test_case_c3_results_become_tool_messages_and_what_else_was_said_follows_them(read):
    said = read(user([text("first"), result("a", "one"), result("b", [text("two")]), text("then")]))
    assert said == (
        Message(Role.TOOL, (Text("one"),), call_id="a"),
        Message(Role.TOOL, (Text("two"),), call_id="b"),
        Message(Role.USER, (Text("first"), Text("then"))),
    )


@pytest.mark.parametrize("content", [None, "", [], [text("")]])
def test_a_result_may_say_nothing(read, content):
    assert read(user([result("a", content)])) == (Message(Role.TOOL, call_id="a"),)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("no such file", (Text("Error: no such file"),)),
        ([text("no"), text("file")], (Text("Error: no"), Text("file"))),
        ("Error: exit 1", (Text("Error: exit 1"),)),
        ("\nerror 7", (Text("\nerror 7"),)),
        ("<tool_use_error>x</tool_use_error>", (Text("<tool_use_error>x</tool_use_error>"),)),
        (None, (Text("Error:"),)),
        ([IMAGE], (Text("Error:"), Image(hashlib.sha256(PNG).hexdigest(), "image/png"))),
    ],
)
def test_a_failed_result_says_so_in_its_text(read, content, parts):
    assert read(user([result("a", content, is_error=True)]))[0].parts == parts
    assert not read(user([result("a", "fine", is_error=False)]))[0].text.startswith("Error")


def test_images_are_parts_by_hash_and_their_bytes_stand_beside_the_messages_once(messages_call):
    call = messages_call(messages=[user([IMAGE, text("see")]), user([result("a", [text("shot"), IMAGE])])])
    media = Media(hashlib.sha256(PNG).hexdigest(), "image/png", PNG)
    assert call.media == (media,)
    assert [message.parts for message in call.messages] == [(media.image, Text("see")), (Text("shot"), media.image)]


def test_an_image_by_its_address_is_left_to_be_fetched_and_its_place_is_known(messages_call):
    block = {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}
    (named,) = messages_call(messages=[user([text("a"), block])]).media
    assert (named.url, named.field, named.data) == ("https://x.test/a.png", "messages[0].content[1].source.url", b"")


@pytest.mark.parametrize("source", [{"type": "file", "file_id": "f"}, {"type": "url"}])
def test_an_image_that_is_elsewhere_is_refused_by_name(messages_refusal, source):
    status, code, param, problem = messages_refusal(messages=[user([text("a"), {"type": "image", "source": source}])])
    assert (status, code, param) == (400, "unsupported_value", "messages[0].content[1].source")
    assert source["type"] in problem


@pytest.mark.parametrize(
    "block",
    [
        {"type": "search_result", "source": {"type": "x"}},
        {"type": "document", "source": {"type": "base64", "data": "x"}},
        {"type": "thinking", "thinking": "t"},
        {"type": "image"}, {"type": "document"}, {"type": "text"}, {"type": "tool_result"}, {"type": "what"},
        {"type": "image", "source": {"type": "base64"}},
        {"type": "tool_result", "tool_use_id": "a", "content": 7},
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_use"}]},
    ],
)  # fmt: skip
def test_a_block_that_cannot_be_served_is_refused_by_place(messages_refusal, block):
    status, _, param, _ = messages_refusal(messages=[user([text("a"), block])])
    assert status == 400
    assert param.startswith("messages[0].content[1]")


def test_a_document_of_plain_text_is_its_text(read):
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "page"}}
    assert read(user([document])) == (Message(Role.USER, (Text("page"),)),)


def test_an_assistant_message_is_its_thinking_text_and_calls(read):
    mark = signature_of("r-c3")
    blocks = [
        {"type": "thinking", "thinking": "so ", "signature": mark},
        {"type": "redacted_thinking", "data": "???"},
        {"type": "thinking", "thinking": "then", "signature": ""},
        text("Hi"),
        {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "/a", "n": 1.0}},
        text(" done"),
    ]
    assert read(user("go"), {"role": "assistant", "content": blocks}, user([result("t1", "b")]))[1] == Message(
        Role.ASSISTANT,
        (Text("Hi done"),),
        reasoning="so then",
        calls=(ToolCall("t1", "ls", '{"p": "/a", "n": 1.0}'),),
        answer_id="r-c3",
    )


@pytest.mark.parametrize("mark", ["", "EqQBCkYIARgCKkD", "skip", None, "dHVybnN0aWxl"])
def test_a_signature_from_elsewhere_says_nothing(read, mark):
    block = {"type": "thinking", "thinking": "t", "signature": mark}
    said = read(user("go"), {"role": "assistant", "content": [block, text("a")]}, user("on"))
    assert said[1] == Message(Role.ASSISTANT, (Text("a"),), reasoning="t")


def test_redacted_thinking_of_ours_is_a_mark(read):
    block = {"type": "redacted_thinking", "data": signature_of("r-c1")}
    said = read(user("go"), {"role": "assistant", "content": [block]}, user("on"))
    assert said[1] == Message(Role.ASSISTANT, answer_id="r-c1")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, {"type": "tool_use", "id": "x"},
        {"type": "tool_use", "id": "x", "name": "ls", "input": [1]}, IMAGE, {"type": "text"},
    ],
)  # fmt: skip
def test_an_assistant_block_that_cannot_be_served_is_refused_by_place(messages_refusal, block):
    status, _, param, _ = messages_refusal(messages=[user("a"), {"role": "assistant", "content": [block]}])
    assert status == 400
    assert param.startswith("messages[1].content[0]")


def test_an_unknown_role_is_refused(messages_refusal):
    assert messages_refusal(messages=[{"role": "tool", "content": "x"}])[1:3] == ("invalid_value", "messages[0].role")


@pytest.mark.parametrize("arguments", ['"ls"', "[1]", "3", "{broken", "null"])
def test_arguments_that_were_put_into_an_object_are_read_back_as_they_were(read, arguments):
    hidden = json.dumps({ODD_ARGUMENTS: arguments})
    call = {"type": "tool_use", "id": "t", "name": "ls", "input": json.loads(hidden)}
    said = read(user("go"), {"role": "assistant", "content": [call]}, user("on"))
    assert said[1].calls == (ToolCall("t", "ls", arguments),)


def test_an_input_that_only_names_the_member_is_left_alone(read):
    call = {"type": "tool_use", "id": "t", "name": "ls", "input": {ODD_ARGUMENTS: "x", "b": 1}}
    said = read(user("go"), {"role": "assistant", "content": [call]}, user("on"))
    assert said[1].calls[0].arguments == '{"__arguments__": "x", "b": 1}'


def test_a_result_that_is_an_object_is_refused_by_its_place(messages_refusal):
    told = messages_refusal(messages=[user([text("See"), result("c1", {"a": 1})])])
    path = "messages[0].content[1].content"
    assert told == (400, "invalid_value", path, f'`{path}`: expected a string or a list, got {{"a":1}}')


def test_a_block_that_is_not_served_is_refused_as_such_whatever_its_content_is(messages_refusal):
    block = {"type": "code_execution_tool_result", "tool_use_id": "c1", "content": {"return_code": 0}}
    path = "messages[0].content[0]"
    told = f"`{path}`: a block of type `code_execution_tool_result` cannot be served there"
    assert messages_refusal(messages=[user([block])]) == (400, "unsupported_value", path, told)
