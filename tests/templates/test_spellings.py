"""One pattern for many texts."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from turnstile.templates.spellings import any_of

TEXTS = st.text(alphabet="ab<|[.", max_size=5)


def test_of_texts_that_begin_alike_the_longest_is_found() -> None:
    pattern = any_of(["<a", "<ab>", "", "b."])
    assert pattern is not None
    assert pattern.findall("<ab> <a <abc b. bx") == ["<ab>", "<a", "<a", "b."]


def test_without_texts_there_is_no_pattern() -> None:
    assert any_of([]) is None
    assert any_of([""]) is None


@given(texts=st.lists(TEXTS.filter(bool), min_size=1), told=st.text(alphabet="ab<|[.", max_size=40))
def test_it_finds_what_an_alternation_from_long_to_short_finds(texts: list[str], told: str) -> None:
    pattern = any_of(texts)
    assert pattern is not None
    longest_first = sorted(texts, key=len, reverse=True)
    assert pattern.findall(told) == re.findall("|".join(map(re.escape, longest_first)), told)
