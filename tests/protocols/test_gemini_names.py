from __future__ import annotations

import json

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.protocols.gemini_names import Names, Spelling, camel_case, names_of


class Leaf(msgspec.Struct, rename="camel"):
    mime_type: str | None = None


class Body(msgspec.Struct, rename="camel"):
    some_parts: list[Leaf] | None = None
    a_leaf: Leaf | None = None
    free_form: msgspec.Raw = msgspec.Raw(b"null")


SPELLING = Spelling(names_of(Body))


def applied(body: object) -> object:
    return json.loads(SPELLING.applied(json.dumps(body).encode()))


def test_names_are_those_of_the_struct_at_any_depth():
    leaf = {"mimeType": Names({})}
    assert names_of(Body) == Names(
        {"someParts": Names(leaf, is_list=True), "aLeaf": Names(leaf), "freeForm": Names({})}
    )


def test_both_spellings_are_one():
    spelled = {"someParts": [{"mimeType": "a"}], "aLeaf": {"mimeType": "b"}}
    assert applied({"some_parts": [{"mime_type": "a"}], "a_leaf": {"mime_type": "b"}}) == spelled
    assert applied(spelled) == spelled


def test_one_element_is_a_list_of_one():
    assert applied({"someParts": {"mimeType": "a"}}) == {"someParts": [{"mimeType": "a"}]}


def test_what_is_not_known_or_of_free_form_is_left_alone():
    body = {"free_form": {"mime_type": 1, "some_parts": {}}, "other_name": {"a_leaf": 2}}
    assert applied(body) == {"freeForm": body["free_form"], "other_name": body["other_name"]}


def test_values_of_another_kind_are_left_to_the_decoder():
    assert applied({"some_parts": 3, "a_leaf": [1]}) == {"someParts": 3, "aLeaf": [1]}


def test_a_body_in_one_spelling_stays_as_it_was_written():
    body = b'{ "someParts" : [ {"mimeType":"a_leaf"} ],"x" :1.50}'
    assert SPELLING.applied(body) is body


def test_a_body_that_is_no_object_is_refused():
    with pytest.raises(CallerError):
        SPELLING.applied(b'[{"a_leaf": 1}]')


@pytest.mark.parametrize(("name", "spelled"), [("max_output_tokens", "maxOutputTokens"), ("seed", "seed")])
def test_camel_case(name, spelled):
    assert camel_case(name) == spelled
