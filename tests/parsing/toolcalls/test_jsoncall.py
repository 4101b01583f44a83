from __future__ import annotations

from turnstile.parsing.toolcalls.base import RawCall
from turnstile.parsing.toolcalls.jsoncall import Broken, Nameless, has_arguments, json_call


def test_a_call_keeps_the_spelling_of_its_arguments():
    assert json_call('{"name": "f", "arguments": {"a" :1.0}}') == RawCall("f", '{"a" :1.0}')


def test_an_object_without_a_name_is_nameless_and_other_text_is_broken():
    assert json_call('{"name": ""}') == Nameless()
    assert isinstance(json_call('{"name": "f"'), Broken)


def test_arguments_have_two_names():
    assert [has_arguments(text) for text in ('{"arguments": 1}', '{"parameters": 1}', "{}")] == [True, True, False]
