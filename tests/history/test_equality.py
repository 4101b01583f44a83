"""The table of what counts as equal."""

from __future__ import annotations

import pytest

from turnstile.conversation import Image, Message, Role, Text, ToolCall, ToolSpec
from turnstile.history.equality import (
    Different,
    Pairing,
    Same,
    ToolDefaults,
    compare,
    compare_answers,
    continued,
    says_something,
    snippet,
)
from turnstile.reasons import NoteCode

NO_DEFAULTS = ToolDefaults(())


def answer(text="", *calls, reasoning=""):
    return Message(Role.ASSISTANT, (Text(text),) if text else (), reasoning=reasoning, calls=calls)


def result(call_id):
    return Message(Role.TOOL, (Text("r"),), call_id=call_id)


def calls(*ids):
    return tuple(ToolCall(call_id, "f", "{}") for call_id in ids)


def places(ids, results):
    pairing = Pairing(calls(*ids))
    return [pairing.place(result(call_id)) for call_id in results]


@pytest.mark.parametrize(
    ("ids", "results", "positions"),
    [
        (("a", "b"), ("b", "a"), [1, 0]),
        (("a", "b"), ("", ""), [0, 1]),
        (("a", "b"), ("x", "y"), [0, 1]),
        (("a", "a"), ("a", "a"), [0, 1]),
        (("a", "b"), ("b", ""), [1, 0]),
        (("a",), ("a", "z"), [0, -1]),
        ((), ("a",), [-1]),
        (("a", "b"), ("a", "a"), [0, 0]),
    ],
)
def test_results_pair_with_calls_by_id_else_by_order(ids, results, positions):
    assert places(ids, results) == positions


def test_pairing_begins_anew_behind_each_answer_and_passes_over_other_messages():
    pairing = Pairing()
    history = [
        answer("", *calls("a")),
        result("a"),
        Message(Role.USER, (Text("u"),)),
        answer("", *calls("a")),
        result("a"),
    ]
    assert [pairing.place(message) for message in history] == [-1, 0, -1, -1, 0]


def test_forgiven_things_are_listed_once():
    held, sent = answer(" A ", reasoning=" R "), answer("A", reasoning="R")
    assert compare_answers(held, sent, NO_DEFAULTS) == Same((NoteCode.MATCH_WHITESPACE,))


def test_reasoning_that_was_never_handed_out_is_an_edit():
    assert compare_answers(answer("A"), answer("A", reasoning="R"), NO_DEFAULTS) == Different("", "R", 0)


def test_other_reasoning_in_front_of_the_text_is_an_edit():
    verdict = compare_answers(answer("A", reasoning="R"), answer("<think>S</think>A"), NO_DEFAULTS)
    assert isinstance(verdict, Different)


def test_text_that_was_handed_out_with_its_thinking_must_come_back_with_it():
    handed_out = answer("<think>R</think>A")
    assert compare_answers(handed_out, answer("<think>R</think>A "), NO_DEFAULTS) == Same((NoteCode.MATCH_WHITESPACE,))
    assert isinstance(compare_answers(handed_out, answer("A"), NO_DEFAULTS), Different)


def test_another_number_of_calls_shows_both_lists():
    held, sent = answer("", ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}")), answer("", ToolCall("a", "f", "{}"))
    assert compare_answers(held, sent, NO_DEFAULTS) == Different("f({}), g({})", "f({})")


def test_the_offset_of_other_arguments_counts_in_their_text():
    held, sent = answer("", ToolCall("a", "f", '{"x":1}')), answer("", ToolCall("a", "f", '{"x":2}'))
    assert compare_answers(held, sent, NO_DEFAULTS) == Different('{"x":1}', '{"x":2}', 5)


def test_arguments_that_are_no_json_must_be_the_same_text():
    broken = answer("", ToolCall("a", "f", '{"q": "a" "b"}'))
    assert compare_answers(broken, answer("", ToolCall("b", "f", '{"q": "a" "b"}')), NO_DEFAULTS) == Same()
    assert isinstance(compare_answers(broken, answer("", ToolCall("b", "f", '{"q":"a" "b"}')), NO_DEFAULTS), Different)


def test_case_j6_a_key_that_is_missing_is_never_forgiven():
    held, sent = answer("", ToolCall("a", "f", '{"x":1,"y":2}')), answer("", ToolCall("a", "f", '{"x":1}'))
    assert isinstance(compare_answers(held, sent, NO_DEFAULTS), Different)


def test_case_j6_a_changed_value_beside_an_added_key_is_an_edit():
    held, sent = answer("", ToolCall("a", "f", '{"x":1}')), answer("", ToolCall("a", "f", '{"x":2,"y":2}'))
    assert isinstance(compare_answers(held, sent, NO_DEFAULTS), Different)


@pytest.mark.parametrize(
    ("declaration", "stated"),
    [
        ('{"function":{"parameters":{"properties":{"n":{"default":1},"m":{},"k":true}}}}', {"n": b"1.0"}),
        ('{"function":{"parameters":{"properties":{"n":{"default":null}}}}}', {"n": b"null"}),
        ('{"function":{}}', {}),
        ('{"function":{"parameters":{"properties":[]}}}', {}),
        ("{}", {}),
        ("no json", {}),
    ],
)
def test_defaults_are_read_from_the_declaration(declaration, stated):
    assert ToolDefaults((ToolSpec("f", declaration),)).of("f") == stated


def test_an_unknown_tool_states_no_defaults():
    assert NO_DEFAULTS.of("f") == {}


def test_messages_of_different_roles_differ_without_an_offset():
    held, sent = Message(Role.USER, (Text("a"),)), answer("a")
    assert compare(held, sent, NO_DEFAULTS) == Different("a", "a")


def test_a_continued_message_is_one_text():
    begun = answer("one, ", reasoning="r")
    assert continued(begun, answer("two", *calls("a"))) == answer("one, two", *calls("a"), reasoning="r")


def test_an_answer_of_whitespace_says_nothing():
    assert not says_something(answer(" \n", reasoning="R"))
    assert says_something(answer("", *calls("a")))


@pytest.mark.parametrize(
    ("text", "offset", "shown"),
    [
        ("short", 4, "short"),
        ("x" * 100, 0, "x" * 60),
        ("a" * 50 + "b" * 50, 50, "a" * 20 + "b" * 40),
        ("a" * 99 + "b", 99, "a" * 59 + "b"),
    ],
)
def test_a_snippet_is_at_most_60_characters_around_the_place(text, offset, shown):
    assert snippet(answer(text), offset) == shown


def test_the_snippet_of_an_answer_without_text_shows_its_calls():
    assert snippet(answer("", ToolCall("a", "f", '{"x":1}'))) == 'f({"x":1})'


PNG = Image("ab" * 32, "image/png")


@pytest.mark.parametrize("role", list(Role))
def test_images_are_equal_by_the_hash_of_their_bytes(role):
    held = Message(role, (Text("a"), PNG))
    same = Message(role, (Text("a"), Image(PNG.sha256, "image/jpeg")))
    assert compare(held, same, NO_DEFAULTS) == Same()


@pytest.mark.parametrize("role", list(Role))
def test_another_image_shows_kind_and_hash_of_both(role):
    held = Message(role, (Text("a"), PNG))
    sent = Message(role, (Text("a"), Image("cd" * 32, "image/jpeg")))
    different = Different("image/png abababababab", "image/jpeg cdcdcdcdcdcd")
    assert compare(held, sent, NO_DEFAULTS) == different
    assert compare(held, Message(role, (Text("a"),)), NO_DEFAULTS) == Different("image/png abababababab", "a")


def test_an_image_that_moved_within_the_text_is_an_edit_but_in_an_answer_its_order_alone_counts():
    assert isinstance(
        compare(Message(Role.USER, (PNG, Text("a"))), Message(Role.USER, (Text("a"), PNG)), NO_DEFAULTS), Different
    )
    moved = Message(Role.ASSISTANT, (Text("a"), PNG))
    assert compare(Message(Role.ASSISTANT, (PNG, Text("a"))), moved, NO_DEFAULTS) == Same()


def test_an_image_says_something_and_stands_in_the_snippet():
    message = Message(Role.USER, (PNG,))
    assert says_something(message)
    assert snippet(message) == "image/png abababababab"
