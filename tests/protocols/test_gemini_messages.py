from __future__ import annotations

import base64
import json

import msgspec
import pytest

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.protocols.gemini_messages import messages_of
from turnstile.protocols.gemini_request import WireContent
from turnstile.protocols.signature import signature_of

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 8).decode()
IMAGE = {"inlineData": {"mimeType": "image/png", "data": PNG}}
CALLS = [{"functionCall": {"name": "f", "args": {"x": 1}}}, {"functionCall": {"name": "g"}}]


def decoded_messages(*contents, system=None):
    decoder = msgspec.json.Decoder(list[WireContent])
    wires = decoder.decode(json.dumps(contents).encode())
    head = decoder.decode(json.dumps([system]).encode())[0] if system else None
    return messages_of(head, wires)


def read(*contents, system=None) -> tuple[Message, ...]:
    return decoded_messages(*contents, system=system)[0]


def content(role, *parts):
    return {"role": role, "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def answered(name=None, response=None, **more):
    return {"functionResponse": {"name": name, "response": response, **more}}


def refused(*contents) -> tuple[str, str]:
    with pytest.raises(CallerError) as caught:
        read(*contents)
    assert caught.value.remedy
    return caught.value.code, caught.value.param


def test_texts_of_the_user_stay_apart_and_those_of_the_model_are_one():
    assert read(content("user", "a", "b"), content("model", "c", "d"), content(None, "e")) == (
        Message(Role.USER, (Text("a"), Text("b"))),
        Message(Role.ASSISTANT, (Text("cd"),)),
        Message(Role.USER, (Text("e"),)),
    )


def test_the_system_instruction_is_the_first_message():
    assert read(content("user", "a"), system=content("user", "s"))[0] == Message(Role.SYSTEM, (Text("s"),))


def test_contents_of_the_model_in_a_row_are_one_answer():
    (_, answer) = read(
        content("user", "a"), content("model", "One "), content("model", "two", CALLS[0]), content("model")
    )
    assert answer.text == "One two"
    assert answer.calls == (ToolCall("fn0001000", "f", '{"x": 1}'),)


def test_thoughts_are_reasoning_and_a_mark_names_the_answer():
    thought = {"text": "R", "thought": True}
    marked = {**CALLS[0], "thoughtSignature": signature_of("r-c3")}
    (answer,) = read(content("model", thought, "A", {**CALLS[1], "thoughtSignature": "Zm9yZWlnbg=="}, marked))
    assert (answer.reasoning, answer.text, answer.answer_id) == ("R", "A", "r-c3")


@pytest.mark.parametrize("mark", ["skip_thought_signature_validator", "Zm9yZWlnbg==", ""])
def test_other_marks_say_nothing(mark):
    (answer, _) = read(content("model", {"thoughtSignature": mark}, "A"), content("user", "b"))
    assert answer == Message(Role.ASSISTANT, (Text("A"),))


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ({"output": "a\nb"}, "a\nb"),
        ({"output": {"a": [1, 2.50]}}, '{"a": [1, 2.5]}'),
        ({"output": None}, ""),
        ({"error": "no file"}, "Error: no file"),
        ({"error": {"code": 3}}, 'Error: {"code": 3}'),
        ({"result": "x"}, '{"result": "x"}'),
        ({"output": "x", "error": "y"}, '{"output": "x", "error": "y"}'),
        ({}, "{}"),
        (None, ""),
    ],
)
def test_a_response_is_told_as_text(response, text):
    (_, result) = read(content("model", *CALLS), content("user", answered("f", response)))
    assert (result.role, result.text) == (Role.TOOL, text)


def test_the_blanks_of_the_clients_serialiser_change_nothing():
    tight = msgspec.json.decode(
        b'[{"parts":[{"functionResponse":{"response":{"a":[1,{"b":"c d"}]}}}]}]', type=list[WireContent]
    )
    loose = msgspec.json.decode(
        b'[{"parts":[{"functionResponse":{"response":{ "a" : [ 1,  { "b":"c d" } ] }}}]}]', type=list[WireContent]
    )
    assert messages_of(None, tight) == messages_of(None, loose)


def test_responses_are_tool_messages_and_the_rest_follows_behind_them():
    messages = read(content("model", *CALLS), content("user", "note", answered("f", {"output": "F"}), IMAGE))
    assert [message.role for message in messages] == [Role.ASSISTANT, Role.TOOL, Role.USER]
    assert messages[2].text == "note" and len(messages[2].images) == 1


@pytest.mark.parametrize(
    ("results", "ids"),
    [
        ([answered("f"), answered("g")], ["fn0000000", "fn0000001"]),
        ([answered("g"), answered("f")], ["fn0000001", "fn0000000"]),
        ([answered("f"), answered("f")], ["fn0000000", "fn0000001"]),
        ([answered(), answered("other")], ["fn0000000", "fn0000001"]),
        ([answered("f", id="own"), answered("f")], ["own", "fn0000000"]),
        ([answered("g"), answered("g"), answered("g")], ["fn0000001", "fn0000000", ""]),
    ],
)
def test_a_response_without_an_id_answers_the_first_open_call_of_its_name_else_the_first(results, ids):
    messages = read(content("model", *CALLS), content("function", *results))
    assert [message.call_id for message in messages[1:]] == ids


def test_ids_that_came_are_kept():
    call = {"functionCall": {"id": "c1", "name": "f", "args": {}}}
    messages = read(content("model", call), content("user", answered("f", id="c1")), content("user", answered("f")))
    assert [messages[0].calls[0].call_id, messages[1].call_id, messages[2].call_id] == ["c1", "c1", ""]


def test_an_image_by_its_address_is_left_to_be_fetched_and_its_place_is_known():
    file = {"fileData": {"mimeType": "image/png", "fileUri": "https://x.test/a.png"}}
    _, media = decoded_messages(content("user", "see", file))
    assert [(each.url, each.field, each.data) for each in media] == [
        ("https://x.test/a.png", "contents[0].parts[1].fileData.fileUri", b"")
    ]
    _, media = decoded_messages(content("model", *CALLS), content("user", answered("f", parts=[file])))
    assert [each.field for each in media] == ["contents[1].parts[0].functionResponse.parts[0].fileData.fileUri"]


def test_a_result_may_hold_images():
    (_, result) = read(content("model", *CALLS), content("user", answered("f", {"output": "see"}, parts=[IMAGE])))
    assert result.text == "see" and len(result.images) == 1


def test_arguments_that_were_no_object_come_back_as_they_were():
    call = {"functionCall": {"name": "f", "args": {"__arguments__": "{broken"}}}
    assert read(content("model", call))[0].calls[0].arguments == "{broken"


@pytest.mark.parametrize(
    ("sent", "code", "param"),
    [
        (content("tool", "a"), "invalid_value", "contents[0].role"),
        (content("user", {"fileData": {"fileUri": "x"}}), "unsupported_value", "contents[0].parts[0]"),
        (content("user", {"executableCode": {}}), "unsupported_value", "contents[0].parts[0]"),
        (content("model", {"codeExecutionResult": {}}), "unsupported_value", "contents[0].parts[0]"),
        (content("model", IMAGE), "unsupported_value", "contents[0].parts[0]"),
        (content("user", {}), "invalid_value", "contents[0].parts[0]"),
        (content("user", *CALLS), "unsupported_value", "contents[0].parts[0]"),
        (
            content("user", {"inlineData": {"mimeType": "audio/wav", "data": "AAAA"}}),
            "unsupported_value", "contents[0].parts[0].inlineData",
        ),
        (
            content("user", {"inlineData": {"mimeType": "image/png"}}),
            "missing_required_parameter", "contents[0].parts[0].inlineData.data",
        ),
        (
            content("user", answered("f", 3)),
            "invalid_value", "contents[0].parts[0].functionResponse.response",
        ),
        (
            content("user", answered("f", parts=[{"fileData": {}}])),
            "unsupported_value", "contents[0].parts[0].functionResponse.parts[0]",
        ),
        (
            content("model", {"functionCall": {"name": "f", "args": [1]}}),
            "invalid_value", "contents[0].parts[0].functionCall.args",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_by_its_place(sent, code, param):
    assert refused(sent) == (code, param)
