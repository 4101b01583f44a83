from __future__ import annotations

from turnstile.parsing.markers import Hit, Markers, without_trailing_space


def test_the_first_marker_counts_and_of_two_at_one_place_the_longer():
    assert Markers(("<c>", "<b>")).first_hit("a<b><c>") == Hit(1, "<b>")
    assert Markers(("<b>", "<b>>")).first_hit("a<b>>") == Hit(1, "<b>>")
    assert Markers(("<b>", "")).first_hit("a") is None


def test_only_an_end_that_may_become_a_marker_is_held():
    assert Markers(("<tool_call>",)).held_from("ab<tool") == 2
    assert Markers(("<tool_call>",)).held_from("ab<<") == 3
    assert Markers(("<tool_call>",)).held_from("ab<x") == 4
    assert Markers(()).held_from("ab") == 2


def test_whitespace_before_a_place_is_found():
    assert without_trailing_space("ab \n<", 4) == 2
