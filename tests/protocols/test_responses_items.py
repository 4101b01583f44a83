"""Items of a Responses input, made into messages."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from turnstile.conversation import AnswerPiece, Message, PieceKind, Role, Text, ToolCall
from turnstile.errors import CallerError
from turnstile.protocols.responses_items import Conversation, conversation_of
from turnstile.protocols.responses_request import WireItem
from turnstile.protocols.signature import signature_of

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
CALL: dict[str, Any] = {"type": "function_call", "call_id": "call_1", "name": "ls", "arguments": '{"p": "/"}'}
LS = ToolCall("call_1", "ls", '{"p": "/"}')
_decoder = msgspec.json.Decoder(list[WireItem])
HI = Message(Role.USER, (Text("hi"),))


def read(*items: dict[str, Any], instructions: str | None = None) -> Conversation:
    return conversation_of(_decoder.decode(json.dumps(items)), instructions)


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def thinks(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}], **more}


def assistant(text: str = "", reasoning: str = "", *calls: ToolCall, answer_id: str = "") -> Message:
    return Message(Role.ASSISTANT, (Text(text),) if text else (), reasoning, calls, answer_id=answer_id)


def test_a_text_is_a_user_message_and_instructions_stand_first():
    assert conversation_of("hi", "Be brief.").messages == (Message(Role.SYSTEM, (Text("Be brief."),)), HI)


@pytest.mark.parametrize("content", ["hi", [{"type": "input_text", "text": "hi"}]])
@pytest.mark.parametrize("type_", [{}, {"type": "message"}])
def test_a_string_is_one_text_part_and_the_type_may_be_left_out(content: object, type_: dict[str, str]):
    assert read({"role": "user", "content": content, **type_}).messages == (HI,)


@pytest.mark.parametrize("role", ["system", "developer"])
def test_developers_speak_as_the_system(role: str):
    assert read({"role": role, "content": "x"}).messages == (Message(Role.SYSTEM, (Text("x"),)),)


def test_items_of_one_answer_are_one_message():
    read_back = read(thinks("R"), says("both"), CALL, dict(CALL, call_id="call_2"))
    assert read_back.messages == (assistant("both", "R", LS, ToolCall("call_2", "ls", '{"p": "/"}')),)


def test_text_behind_a_call_is_of_the_same_answer():
    assert read(says("a"), CALL, says("b")).messages == (
        Message(Role.ASSISTANT, (Text("a"), Text("b")), calls=(LS,)),
    )  # fmt: skip


def test_text_behind_text_without_ids_is_another_answer():
    assert read(says("a"), says("b")).messages == (assistant("a"), assistant("b"))


def test_ids_that_were_minted_here_tell_answers_apart_and_join_what_is_of_one():
    items = [says("a", id="msg_r-c0-0"), says("b", id="msg_r-c0-1"), thinks("R", id="rs_r-c1-0"), CALL]
    assert read(*items).messages == (
        Message(Role.ASSISTANT, (Text("a"), Text("b")), answer_id="r-c0"),
        assistant("", "R", LS, answer_id="r-c1"),
    )


def test_an_output_ends_an_answer():
    output = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
    result = Message(Role.TOOL, (Text("x"),), call_id="call_1")
    assert read(CALL, output, says("done")).messages == (assistant("", "", LS), result, assistant("done"))


def test_an_output_may_be_a_list():
    output = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    (message,) = read({"type": "function_call_output", "call_id": "c", "output": output}).messages
    assert message == Message(Role.TOOL, (Text("a"), Text("b")), call_id="c")


def test_an_image_is_a_part_by_its_hash_and_its_bytes_come_once():
    shown = {"type": "input_image", "image_url": PIXEL}
    said = read({"role": "user", "content": [{"type": "input_text", "text": "see"}, shown, shown]})
    (media,) = said.media
    assert said.messages == (Message(Role.USER, (Text("see"), media.image, media.image)),)


def test_reasoning_is_read_from_its_content_else_from_its_summary():
    summary = [{"type": "summary_text", "text": "S"}]
    assert read(thinks("R", summary=summary)).messages[0].reasoning == "R"
    assert read({"type": "reasoning", "summary": summary, "content": None}).messages[0].reasoning == "S"


def test_a_mark_that_came_back_names_its_answer_and_a_foreign_one_is_noted():
    ours = read(thinks("", id="x", encrypted_content=signature_of("r-c3")), says("a"))
    foreign = read({"role": "user", "content": "hi"}, thinks("", encrypted_content="gAAAAB"), says("a"))
    assert (ours.messages, ours.foreign_blobs) == ((assistant("a", answer_id="r-c3"),), ())
    assert (foreign.messages, foreign.foreign_blobs) == ((HI, assistant("a")), ("input[1]",))


def test_the_input_of_a_custom_call_is_a_member_of_its_arguments():
    call = {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": 'a "b"\n'}
    assert read(call).messages[0].calls == (ToolCall("c", "patch", '{"input":"a \\"b\\"\\n"}'),)
    as_written = dict(call, id="ctcw_r-c0-0", input='{"text": 1}')
    assert read(as_written).messages[0].calls == (ToolCall("c", "patch", '{"text": 1}'),)


def test_a_call_of_a_namespace_has_the_name_that_the_model_knows():
    assert read(dict(CALL, namespace="agents")).messages[0].calls[0].name == "agents__ls"


def test_items_that_are_only_named_are_pieces_in_their_places():
    named = [{"type": "item_reference", "id": each} for each in ("rs_r-c0-0", "msg_r-c0-0", "fc_r-c0-1")]
    said = read({"role": "user", "content": "hi"}, *named[:2], dict(CALL, id="fc_r-c0-0"), {"id": "fc_r-c0-1"})
    assert said.messages == (HI, assistant("", "", LS, answer_id="r-c0"))
    assert said.pieces == (
        AnswerPiece(1, "r-c0", PieceKind.REASONING, 0, 0),
        AnswerPiece(1, "r-c0", PieceKind.TEXT, 0, 0),
        AnswerPiece(1, "r-c0", PieceKind.CALL, 1, 1),
    )


@pytest.mark.parametrize(
    ("item", "code", "param"),
    [
        ({"type": "web_search_call", "id": "ws_1"}, "unsupported_value", "input[0].type"),
        ({"type": "compaction", "encrypted_content": "x"}, "unsupported_value", "input[0].type"),
        ({"role": "robot", "content": "x"}, "invalid_value", "input[0].role"),
        ({"type": "message", "role": "user"}, "missing_required_parameter", "input[0].content"),
        ({"type": "function_call", "name": ""}, "invalid_value", "input[0].name"),
        ({"type": "custom_tool_call", "name": "p"}, "missing_required_parameter", "input[0].input"),
        ({"type": "function_call_output", "output": "x"}, "missing_required_parameter", "input[0].call_id"),
        ({"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}, "unsupported_value",
         "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "missing_required_parameter",
         "input[0].content[0].text"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, "missing_required_parameter",
         "input[0].content[0].image_url"),
        ({"type": "item_reference", "id": "msg_68ab"}, "item_not_found", "input[0].id"),
    ],
)  # fmt: skip
def test_an_item_that_cannot_be_served_is_refused_by_its_place(item: dict[str, Any], code: str, param: str):
    with pytest.raises(CallerError) as caught:
        read(item)
    assert (caught.value.code, caught.value.param) == (code, param)
