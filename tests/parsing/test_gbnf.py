from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.parsing.gbnf import Rules, either, literal


@settings(deadline=None)
@given(text=st.text(max_size=8), other=st.text(max_size=8))
def test_a_literal_accepts_exactly_its_text(machine, text, other):
    grammar = machine(Rules().render(literal(text)))
    assert grammar.accepts(text)
    assert grammar.accepts(other) == (other == text)


@settings(deadline=None)
@given(text=st.text("<>/ab", max_size=10), end=st.sampled_from(["</a>", "aab", "<", "abab", "]-^"]))
def test_a_text_through_an_end_holds_it_once_and_at_the_end(machine, text, end):
    rules = Rules()
    grammar = machine(rules.render(rules.through(end, "text")))
    for whole in (text, text + end):
        assert grammar.accepts(whole) == (whole.find(end) == len(whole) - len(end) and end in whole)


def test_rules_have_names_of_their_own():
    rules = Rules()
    assert [rules.add("A b!", '"x"') for _ in range(2)] == ["a-b", "a-b-2"]
    assert rules.reserve("root") == "root-2"
    assert rules.reserve("!") == "rule"


def test_a_shared_rule_is_written_once():
    rules = Rules()
    assert rules.share("[0-9]", "digit") == rules.share("[0-9]", "digit")
    assert rules.render("digit") == "root ::= digit\ndigit ::= [0-9]\n"


@pytest.mark.parametrize(("choices", "expected"), [(["a"], "a"), (["a", "b"], "(a | b)")])
def test_choices_are_put_in_brackets(choices, expected):
    assert either(choices) == expected
