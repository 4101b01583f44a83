from __future__ import annotations

from turnstile.parsing.markers import Hit, first_hit, held_from, without_trailing_space


def test_the_first_marker_counts_and_of_two_at_one_place_the_longer():
    assert first_hit("a<b><c>", ("<c>", "<b>")) == Hit(1, "<b>")
    assert first_hit("a<b>>", ("<b>", "<b>>")) == Hit(1, "<b>>")
    assert first_hit("a", ("<b>",)) is None


def test_only_an_end_that_may_become_a_marker_is_held():
    assert held_from("ab<tool", ("<tool_call>",)) == 2
    assert held_from("ab<<", ("<tool_call>",)) == 3
    assert held_from("ab<x", ("<tool_call>",)) == 4
    assert held_from("ab", ()) == 2


def test_whitespace_before_a_place_is_found():
    assert without_trailing_space("ab \n<", 4) == 2
