from __future__ import annotations

from turnstile.parsing.visible import HiddenToken, VisibleText
from turnstile.tokens import IdRun


def visible(vocabulary, markers=frozenset(), stop_ids=frozenset()):
    return VisibleText(vocabulary, markers, stop_ids)


def test_a_character_comes_when_its_last_byte_does(vocabulary):
    text = visible(vocabulary)
    assert [text.feed(IdRun.of([byte])) for byte in "é".encode()] == ["", "é"]
    assert text.finish() == ""


def test_a_character_that_is_cut_off_becomes_one_replacement_character(vocabulary):
    text = visible(vocabulary)
    assert (text.feed(IdRun.of(list("😀".encode()[:3]))), text.finish()) == ("", "\ufffd")


def test_bytes_that_are_no_text_are_replaced_and_reading_goes_on(vocabulary):
    assert visible(vocabulary).feed(IdRun.of([0xFF, ord("a")])) == "\ufffda"


def test_control_tokens_are_hidden_unless_they_are_markers(vocabulary):
    text = visible(vocabulary, markers=frozenset({"<|python_tag|>"}))
    assert text.feed(vocabulary.encode("a<|box_start|>b<|python_tag|>")) == "ab<|python_tag|>"
    assert text.hidden == [HiddenToken(1, "<|box_start|>")]


def test_a_hidden_token_inside_a_character_does_not_break_it(vocabulary):
    emoji = "😀".encode()
    ids_S = [*emoji[:2], vocabulary.id_of("<|box_start|>"), *emoji[2:]]
    assert visible(vocabulary).feed(IdRun.of(ids_S)) == "😀"


def test_a_stop_id_is_hidden_even_if_it_is_a_marker(vocabulary):
    close = vocabulary.id_of("</tool_call>")
    text = visible(vocabulary, frozenset({"</tool_call>"}), frozenset({close}))
    assert text.feed(IdRun.of([ord("a"), close])) == "a"


def test_ids_outside_the_vocabulary_have_no_text(vocabulary):
    assert visible(vocabulary).feed(IdRun.of([vocabulary.size, -1, ord("a")])) == "a"


def test_it_is_settled_where_no_character_is_open(vocabulary):
    text = VisibleText(vocabulary, frozenset(), frozenset())
    settled = [text.is_settled for byte in "aé".encode() if text.feed(IdRun.of([byte])) is not None]
    assert settled == [True, False, True]
