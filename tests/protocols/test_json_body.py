from __future__ import annotations

from typing import Annotated

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.protocols.json_body import check_text, fields_of, read_json, snippet, string_or_json


class Item(msgspec.Struct):
    text: str | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1


class Body(msgspec.Struct):
    items: list[Item] = []
    bias: dict[str, float] = {}
    either: str | list[str] | None = None
    must: str = ""


class Strict(msgspec.Struct):
    must: str


DECODER = msgspec.json.Decoder(Body)


def problem_of(body: bytes, decoder: msgspec.json.Decoder = DECODER, at: str = "") -> tuple[str, str]:
    with pytest.raises(CallerError) as caught:
        read_json(decoder, body, at)
    return caught.value.param, caught.value.problem


@pytest.mark.parametrize(
    ("body", "param", "problem"),
    [
        (b'{"items":[{},{"text":3}]}', "items[1].text", "`items[1].text`: expected a string, got 3"),
        (b'{"items":[{"count":0}]}', "items[0].count", "`items[0].count`: expected an integer at least 1, got 0"),
        (b'{"items":[{"count":10}]}', "items[0].count", "`items[0].count`: expected an integer at most 9, got 10"),
        (b'{"items":[{"count":true}]}', "items[0].count", "`items[0].count`: expected an integer, got true"),
        (b'{"either":{"a":[1]}}', "either", '`either`: expected a string or a list, got {"a":[1]}'),
        (b'{"bias":{"7":"x"}}', "bias", '`bias`: expected a number, got {"7":"x"}'),
        (b'{"bias":{"7":1e999}}', "bias", '`bias`: Number out of range, got {"7":1e999}'),
        (b"[]", "", "The request body: expected an object, got []"),
        (b'"a"', "", 'The request body: expected an object, got "a"'),
    ],
)
def test_a_wrong_value_is_named_with_its_path_and_what_stood_there(body: bytes, param: str, problem: str):
    assert problem_of(body) == (param, problem)


def test_a_missing_field_is_named():
    problem = problem_of(b"{}", msgspec.json.Decoder(Strict))
    assert problem == ("must", "`must`: expected a value, but it is missing")


def test_a_path_starts_where_the_value_stands_in_the_body():
    assert problem_of(b'{"must":1}', at="tools[2]") == ("tools[2].must", "`tools[2].must`: expected a string, got 1")


def test_a_long_value_is_shortened_and_put_on_one_line():
    _, problem = problem_of(b'{"must":[\n"' + b"x" * 5000 + b'"]}')
    assert problem == '`must`: expected a string, got [ "' + "x" * 37 + "..."


def test_a_fault_in_the_first_of_two_equal_members_is_reported():
    assert problem_of(b'{"items":[{"text":1}],"items":[]}') == (
        "items[0].text",
        "`items[0].text`: expected a string, got another value",
    )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "The request body is not JSON: it ends too early"),
        (b"{}x", "The request body is not JSON: trailing characters (byte 3)"),
        (b'{"a":NaN}', "The request body is not JSON: invalid character (byte 5)"),
        (b'{"a":"\\ud83d"}', "The request body holds half of a surrogate pair at byte 6"),
        (b'{"a":"\\ude00"}', "The request body holds half of a surrogate pair at byte 6"),
        (b'{"a":"\\ud83d\\ude00', "The request body is not JSON: it ends too early"),
        (b'{"a":' + b"[" * 100_000, "The request body is nested too deeply"),
        (b'{"a":' + b'{"a":' * 100_000, "The request body is nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused(body: bytes, problem: str):
    assert problem_of(body) == ("", problem)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "The request body is empty"),
        (b" \n", "The request body is empty"),
        (b'{"a":"\xff"}', "The request body is not UTF-8 at byte 6"),
        (b"\xed\xa0\x80", "The request body is not UTF-8 at byte 0"),
    ],
)
def test_what_is_no_text_is_refused(body: bytes, problem: str):
    with pytest.raises(CallerError) as caught:
        check_text(body)
    assert (caught.value.problem, caught.value.code) == (problem, "invalid_json")


def test_the_members_of_an_object_are_found_unread():
    fields = fields_of(b'{"a": [1, 2] , "b":"x","a":3}')
    assert {name: bytes(raw) for name, raw in fields.items()} == {"a": b"3", "b": b'"x"'}


@pytest.mark.parametrize(
    ("raw", "text"),
    [(b'"a\\n\\u00e9"', "a\n\u00e9"), (b"null", ""), (b'{"b": 1.0}', '{"b": 1.0}'), (b"3", "3"), (b'""', "")],
)
def test_a_string_gives_its_text_and_any_other_value_its_json(raw: bytes, text: str):
    assert string_or_json(msgspec.Raw(raw)) == text


def test_a_snippet_is_short_and_on_one_line():
    assert snippet("a\n  b" + "c" * 60) == "a b" + "c" * 37 + "..."
