from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.parsing.jsontext import ends_in_string, members, object_end, parse, write

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def test_members_keep_the_spelling_of_their_values():
    found = members(' { "a" : [1.0,\n2e3] , "b":"\\u00e9", "a": {}, "c": 12345678901234567890123 } ')
    assert {key: member.text for key, member in found.items()} == {
        "a": "{}",
        "b": '"\\u00e9"',
        "c": "12345678901234567890123",
    }
    assert [member.is_string for member in found.values()] == [False, True, False]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "{1: 2}", '{"a"}', '{"a": 1,}', '{"a": 1} x', '{"a": NaN}', '{"a": "b\n"}', '{"a": ' + "[" * 99999],
)
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        members(text)


@settings(max_examples=50, deadline=None)
@given(value=st.dictionaries(st.text(max_size=4), JSON, max_size=4), indent=st.sampled_from([None, 2]))
def test_any_object_is_read_with_its_texts(value, indent):
    found = members(json.dumps(value, indent=indent))
    assert {key: json.loads(member.text) for key, member in found.items()} == value


@settings(max_examples=50, deadline=None)
@given(value=st.dictionaries(st.text(max_size=4), JSON, max_size=3), ascii_only=st.booleans())
def test_an_object_ends_where_its_braces_do_and_breaks_off_in_strings_or_not(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert object_end(text + " }", 0) == len(text)
    for end in range(1, len(text)):
        assert object_end(text[:end], 0) is None
        part = text[:end]
        quotes = len(part.replace("\\\\", "").replace('\\"', "").split('"')) - 1
        assert ends_in_string(part) == (quotes % 2 == 1)


def test_values_are_written_as_templates_print_them():
    assert write({"a": [1, "é"], "b": None}) == '{"a": [1, "é"], "b": null}'


def test_only_json_is_parsed():
    assert parse("[1, null]") == [1, None]
    for text in ("NaN", "[" * 99999):
        with pytest.raises(ValueError, match=r"."):
            parse(text)
