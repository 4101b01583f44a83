"""Keys of prefixes and digests of bodies."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.conversation import (
    AnyText,
    Call,
    Image,
    JsonObject,
    Media,
    Message,
    RetryMark,
    Role,
    Sampling,
    Text,
    ToolCall,
    ToolMode,
    ToolSpec,
)
from turnstile.history.digest import (
    Readable,
    Unreadable,
    body_digest,
    canonical_arguments,
    extended,
    head_key,
    read_json,
    weak,
)

CALL = Call(
    "openai.chat",
    "m",
    (
        Message(Role.USER, (Text("q"),)),
        Message(Role.ASSISTANT, calls=(ToolCall("c1", "f", '{"a":1}'),)),
        Message(Role.TOOL, (Text("r"),), call_id="c1"),
    ),
    tools=(ToolSpec("f", '{"name":"f"}'),),
    sampling=Sampling(temperature=0.7),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def user(text):
    return Message(Role.USER, (Text(text),))


def answer(text="", *calls, reasoning=""):
    return Message(Role.ASSISTANT, (Text(text),), reasoning=reasoning, calls=calls)


def test_case_f1_a_retry_has_the_digest_of_the_first_attempt():
    retry = msgspec.structs.replace(CALL, retry=RetryMark("key", 1), agent_name="a", unknown_fields=("stream_options",))
    assert body_digest(retry) == body_digest(CALL)
    assert len(body_digest(CALL)) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"model": "n"},
        {"dialect": "anthropic"},
        {"messages": CALL.messages[:-1]},
        {"messages": (*CALL.messages[:2], Message(Role.TOOL, (Text("r"),), call_id="c2"))},
        {"messages": (CALL.messages[0], answer("", ToolCall("c1", "f", '{"a": 1}')), CALL.messages[2])},
        {"tools": ()},
        {"tool_choice": ToolMode.NONE},
        {"sampling": Sampling(temperature=0.8)},
        {"template_kwargs": '{"enable_thinking":false}'},
        {"output": JsonObject()},
    ],
)
def test_case_f1_a_body_that_means_something_else_has_another_digest(change):
    assert body_digest(msgspec.structs.replace(CALL, **change)) != body_digest(CALL)


def test_a_default_that_is_spelled_out_changes_no_digest():
    assert body_digest(msgspec.structs.replace(CALL, output=AnyText(), tool_choice=ToolMode.AUTO)) == body_digest(CALL)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_arguments_have_one_spelling_for_one_value(arguments):
    spread = json.dumps(dict(reversed(arguments.items())), indent=2)
    compact = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    assert canonical_arguments(spread) == canonical_arguments(compact)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":1e3}', '{"a":1000}'),
        ('{"a":-0.0}', '{"a":0}'),
        ("", "{}"),
        ("null", " "),
        ("{", "{"),
    ],
)
def test_equal_arguments_have_equal_spellings(one, other):
    assert canonical_arguments(one) == canonical_arguments(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [('{"a":1}', '{"a":true}'), ('{"a":1}', '{"a":"1"}'), ('{"a":[1,2]}', '{"a":[2,1]}'), ("{", "{ "), ("[]", "{}")],
)
def test_other_arguments_have_other_spellings(one, other):
    assert canonical_arguments(one) != canonical_arguments(other)


@pytest.mark.parametrize("text", ["{", '{"a": NaN}', "1" + "0" * 400, '"\\ud800"', "[" * 100_000])
def test_what_no_double_or_parser_holds_is_unreadable(text):
    assert read_json(text) == Unreadable()


def test_numbers_are_read_as_doubles():
    assert read_json('{"a":[1,true]}') == Readable({"a": [1.0, True]})


def test_a_key_depends_on_head_order_and_every_message():
    start = head_key("h")
    keys = {
        start,
        head_key("g"),
        extended(start, user("a")),
        extended(start, user("b")),
        extended(start, Message(Role.SYSTEM, (Text("a"),))),
        extended(extended(start, user("a")), user("b")),
        extended(extended(start, user("b")), user("a")),
        extended(start, user("ab")),
    }
    assert len(keys) == 8


def test_a_result_is_known_by_the_call_that_it_answers_not_by_its_id():
    start = head_key("h")
    first, renamed = (Message(Role.TOOL, (Text("r"),), call_id=call_id) for call_id in ("a", "b"))
    assert extended(start, first, 0) == extended(start, renamed, 0)
    assert extended(start, first, 0) != extended(start, first, 1)


def test_the_content_of_an_answer_leaves_out_what_clients_do_not_bring_back():
    call, renamed = ToolCall("a", "f", '{"x":1}'), ToolCall("b", "f", '{ "x": 1.0 }')
    assert weak(answer(" yes\n", call, reasoning="R")) == weak(answer("yes", renamed))
    assert weak(answer("yes", call)) != weak(answer("yes"))
    assert weak(answer("yes")) != weak(user("yes"))


def test_the_text_of_a_user_is_taken_as_it_is():
    assert weak(user("a")) != weak(user("a "))


def test_a_lone_surrogate_has_a_key():
    assert weak(user("\ud800")) != weak(user("\ud801"))


def shown(*parts):
    return Message(Role.USER, parts)


def test_images_are_told_apart_by_their_bytes_and_their_place_not_by_their_declared_kind():
    png, jpeg, other = (
        Image("ab" * 32, "image/png"),
        Image("ab" * 32, "image/jpeg"),
        Image("cd" * 32, "image/png"),
    )
    assert weak(shown(Text("a"), png)) == weak(shown(Text("a"), jpeg))
    different = [
        shown(Text("a"), png),
        shown(png, Text("a")),
        shown(Text("a"), other),
        shown(Text("a"), png, png),
        shown(Text("a")),
        shown(Text("a" + "ab" * 32)),
    ]
    assert len({weak(message) for message in different}) == len(different)


def test_an_answer_with_an_image_may_lose_whitespace_around_its_text():
    image = Image("ab" * 32, "image/png")
    kept = Message(Role.ASSISTANT, (Text(" a "), image))
    assert weak(kept) == weak(Message(Role.ASSISTANT, (Text("a"), image)))
    assert weak(kept) != weak(Message(Role.ASSISTANT, (Text("a"),)))


def test_the_bytes_of_images_are_no_part_of_a_bodys_digest():
    with_bytes = msgspec.structs.replace(CALL, media=(Media("ab" * 32, "image/png", b"x"),))
    assert body_digest(with_bytes) == body_digest(CALL)
    with_image = msgspec.structs.replace(CALL, messages=(shown(Image("ab" * 32, "image/png")),))
    other = msgspec.structs.replace(CALL, messages=(shown(Image("cd" * 32, "image/png")),))
    assert body_digest(with_image) != body_digest(other)
