from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.parsing.stops import StopFilter


def test_a_stop_string_over_several_pieces_ends_the_text():
    stops = StopFilter(("STOP",))
    assert [stops.feed(piece) for piece in ("a S", "TO", "P b", "c")] == ["a ", "", "", ""]
    assert (stops.matched, stops.finish()) == ("STOP", "")


def test_what_became_no_stop_string_is_let_through_at_the_end():
    stops = StopFilter(("STOP", ""))
    assert (stops.feed("a ST"), stops.finish(), stops.matched) == ("a ", "ST", "")


def test_the_string_that_is_complete_first_counts_and_of_two_the_longer():
    stops = StopFilter(("abcd", "bc", "c"))
    assert (stops.feed("xabcd"), stops.matched) == ("xa", "bc")


@settings(deadline=None)
@given(
    text=st.text("ab", max_size=12),
    stop=st.lists(st.text("ab", max_size=3), max_size=3).map(tuple),
    cuts=st.lists(st.integers(0, 12), max_size=5),
)
def test_the_text_never_depends_on_how_it_was_cut(text, stop, cuts):
    whole, pieces = StopFilter(stop), StopFilter(stop)
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    said = "".join(pieces.feed(text[start:end]) for start, end in itertools.pairwise(places))
    expected = whole.feed(text) + whole.finish()
    assert (said + pieces.finish(), pieces.matched) == (expected, whole.matched)
    assert not any(each in expected for each in stop if each)


def test_it_is_settled_while_nothing_is_held_back():
    stops = StopFilter(("STOP",))
    settled = [stops.is_settled for piece in ("a", " S", "o") if stops.feed(piece) is not None]
    assert settled == [True, False, True]
