from __future__ import annotations

import pytest

from turnstile.generation import Note
from turnstile.parsing.toolcalls.base import NotACall, RawCall, Section, Unfinished
from turnstile.parsing.toolcalls.hermes import Hermes
from turnstile.reasons import NoteCode

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def test_a_call_ends_at_its_closing_marker():
    assert Hermes().read(CALL + " x", ()) == Section(len(CALL), (RawCall("f", '{"a": 1}'),))
    assert Hermes().read(CALL[:-1], ()) == Unfinished(("</tool_call>",))


def test_a_closing_marker_inside_a_string_does_not_close():
    text = '<tool_call>{"name": "f", "arguments": {"a": "\\"</tool_call>"}}</tool_call>'
    assert Hermes().read(text, ()) == Section(len(text), (RawCall("f", '{"a": "\\"</tool_call>"}'),))


def test_a_string_that_never_ends_gives_up_at_the_first_closing_marker():
    text = '<tool_call>{"name": "f</tool_call> and more'
    assert Hermes().read(text, ()) == Unfinished(("</tool_call>",))
    reading = Hermes().read_last(text, ())
    assert (type(reading), reading.end) == (NotACall, text.index(" and more"))


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"arguments": {"a": 1}, "name": "f"}', '{"a": 1}'),
        ('{"name": "f", "parameters": {}}', "{}"),
        ('{"name": "f"}', "{}"),
        ('\n {"name": "f", "arguments": "{\\"a\\": 1}"} \n', '"{\\"a\\": 1}"'),
    ],
)
def test_what_engines_take_for_a_call_is_one(body, arguments):
    text = f"<tool_call>{body}</tool_call>"
    assert Hermes().read(text, ()) == Section(len(text), (RawCall("f", arguments),))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", NoteCode.TOOL_SECTION_WITHOUT_CALL),
        ("f(1)", NoteCode.TOOL_SECTION_WITHOUT_CALL),
        ("{", NoteCode.TOOL_JSON_INVALID),
        ('{"arguments": {}}', NoteCode.TOOL_JSON_INVALID),
        ('{"name": 1, "arguments": {}}', NoteCode.TOOL_JSON_INVALID),
        ('{"name": "\\ud800", "arguments": {}}', NoteCode.TOOL_JSON_INVALID),
    ],
)
def test_what_is_no_call_says_why(body, code):
    reading = Hermes().read(f"<tool_call>{body}</tool_call>", ())
    assert isinstance(reading, NotACall)
    assert isinstance(reading.note, Note)
    assert reading.note.code is code


def test_a_model_that_ends_without_the_closing_marker_has_called():
    text = CALL.removesuffix("</tool_call>")
    assert Hermes().read_last(text, ()) == Section(len(text), (RawCall("f", '{"a": 1}'),))
