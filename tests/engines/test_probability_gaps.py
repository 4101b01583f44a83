from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.engines.llamacpp_shapes import ProbabilityEntry
from turnstile.engines.probability_gaps import align, ends_inside_character


@given(st.text(), st.integers(0, 3))
def test_a_text_is_unfinished_iff_a_utf8_decoder_still_waits(text, cut):
    written = text.encode("utf-8", "ignore")
    shortened = written[: len(written) - cut]
    decoder = codecs.getincrementaldecoder("utf-8")()
    decoder.decode(shortened)
    assert ends_inside_character(shortened) == bool(decoder.getstate()[0])


@pytest.mark.parametrize("text", [b"", b"a", b"\x9f", b"\x9f\x98\x80", b"\xff", b"\xf0\x9f\x98\x80"])
def test_bytes_that_begin_no_character_leave_a_text_whole(text):
    assert not ends_inside_character(text)


def entries_of(*ids):
    return [ProbabilityEntry(id=token, prob=0.5) for token in ids]


def known(aligned):
    return [entry is not None for entry in aligned.entries_S]


def test_entries_are_placed_on_the_tokens_that_leave_the_text_whole(vocabulary):
    tokens = [*vocabulary.spell("a🙂b"), 1]
    aligned = align(tokens, entries_of(tokens[0], tokens[4], tokens[5], 1), vocabulary)
    assert known(aligned) == [True, False, False, False, True, True, True]
    assert aligned.gaps == (1, 2, 3)


def test_a_control_token_inside_a_character_has_no_entry_as_it_adds_no_text(vocabulary):
    tokens = [*vocabulary.spell("🙂")[:2], 1]
    assert align(tokens, [], vocabulary).gaps == (0, 1, 2)


def test_a_server_that_prints_control_tokens_is_understood(vocabulary):
    tokens = [*vocabulary.spell("🙂")[:2], 1]
    aligned = align(tokens, entries_of(1), vocabulary)
    assert (known(aligned), aligned.gaps) == ([False, False, True], (0, 1))


def test_from_the_first_entry_of_another_token_on_nothing_is_believed(vocabulary):
    tokens = vocabulary.spell("abcd")
    aligned = align(tokens, entries_of(tokens[0], tokens[2], tokens[3]), vocabulary)
    assert (known(aligned), aligned.gaps) == ([True, False, False, False], ())
