from __future__ import annotations

import pytest

from turnstile.parsing.formats import by_name
from turnstile.parsing.toolcalls.base import NotACall, RawCall, Section, Unfinished
from turnstile.parsing.toolcalls.llama3_json import Llama3Json

CALL = '{"name": "f", "parameters": {"a": {"b": "}"}}}'
RAW = RawCall("f", '{"a": {"b": "}"}}')


@pytest.mark.parametrize("opener", ["", "<|python_tag|>", "; ", "<|python_tag|>\n"])
def test_a_call_ends_where_its_braces_do(opener):
    text = opener + CALL
    assert Llama3Json().read(text + "; {", ()) == Section(len(text), (RAW,))
    for end in range(1, len(text)):
        if not "<|python_tag|>".startswith(text[:end]) or text[:end] == "<|python_tag|>":
            assert isinstance(Llama3Json().read(text[:end], ()), Unfinished)


@pytest.mark.parametrize("text", ['{"answer": 1', "{}", "{ 1", '{"nickname', "{'name'"])
def test_an_object_that_is_no_call_is_seen_by_its_first_key(text):
    assert Llama3Json().read(text, ()) == NotACall(1)


def test_an_object_with_a_name_and_no_arguments_is_data():
    text = '{"name": "Bob", "age": 3}'
    assert Llama3Json().read(text, ()) == NotACall(len(text))


def test_code_behind_the_tag_is_shown_and_noted(read):
    told = read('<|python_tag|>brave_search.call(query="x")', format=by_name("llama3_json"))
    assert (told.content, told.notes) == (
        '<|python_tag|>brave_search.call(query="x")',
        ("tool_section_without_call",),
    )


def test_several_calls_are_parted_by_semicolons(read):
    told = read(f"<|python_tag|>{CALL}; {CALL}", format=by_name("llama3_json"))
    assert (told.content, told.calls) == ("", (("f", RAW.arguments),) * 2)


def test_json_in_the_middle_of_an_answer_is_content(read):
    told = read(f"Like this: {CALL}", format=by_name("llama3_json"))
    assert (told.content, told.calls) == (f"Like this: {CALL}", ())


def test_a_json_answer_is_content(read):
    told = read('{"type": "object"}; done', format=by_name("llama3_json"))
    assert (told.content, told.calls, told.notes) == ('{"type": "object"}; done', (), ())


def test_braces_that_never_close_are_text(read):
    told = read('{"name": "f", "parameters": {', format=by_name("llama3_json"))
    assert (told.content, told.notes) == ('{"name": "f", "parameters": {', ("tool_json_invalid",))
