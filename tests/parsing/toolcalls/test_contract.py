"""What every tool-call format owes, for all of them at once."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.conversation import ToolMode
from turnstile.parsing.formats import by_name
from turnstile.parsing.gbnf import Rules
from turnstile.parsing.toolcalls import FORMATS
from turnstile.parsing.toolcalls.base import NotACall, Section, Unfinished

WRITTEN = {
    "hermes": '<tool_call>\n{{"name": "cat", "arguments": {json}}}\n</tool_call>',
    "llama3_json": '{{"name": "cat", "parameters": {json}}}',
    "qwen3_coder": "<tool_call>\n<function=cat>\n{xml}</function>\n</tool_call>",
}
ARGUMENTS = st.fixed_dictionaries(
    {"n": st.integers(-(10**9), 10**9)},
    optional={
        "text": st.text(max_size=6).filter(lambda text: "</parameter>" not in text),
        "mode": st.sampled_from(["r", "w"]),
        "tags": st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=2),
        "limit": st.none() | st.integers(0, 9),
    },
)


def _written(name, arguments):
    ordered = {key: arguments[key] for key in ("n", "text", "mode", "tags", "limit") if key in arguments}
    plain = {key: value if isinstance(value, str) else json.dumps(value) for key, value in ordered.items()}
    xml = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in plain.items())
    return WRITTEN[name].format(json=json.dumps(ordered), xml=xml)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_the_contract_covers_every_format(known):
    assert known.name in WRITTEN
    assert known.syntax.openers


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
@settings(max_examples=60, deadline=None)
@given(arguments=ARGUMENTS)
def test_a_call_that_the_grammar_lets_through_is_read_back(known, machine, cat, arguments):
    text = _written(known.name, arguments)
    rules = Rules()
    grammar = machine(rules.render(known.call_rule(rules, cat)))
    assert grammar.accepts(text)
    reading = known.read(text, (cat,))
    assert isinstance(reading, Section)
    ((name, read),) = [(call.name, json.loads(call.arguments)) for call in reading.calls]
    assert (name, read, reading.end) == ("cat", arguments, len(text))


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_longer_text_never_changes_what_was_said(known, cat, data):
    opener = data.draw(st.sampled_from([opener.marker for opener in known.syntax.openers]))
    whole = _written(known.name, {"n": 1})
    tags = [piece for piece in re.split(r"(<[^>]*>|[{}])", whole) if piece]
    text = opener + "".join(data.draw(st.lists(st.sampled_from([whole, " ", "\n", '"', "x", *tags]), max_size=8)))
    said = None
    for end in range(len(opener), len(text) + 1):
        reading = known.read(text[:end], (cat,))
        if said is not None:
            assert reading == said
        elif not isinstance(reading, Unfinished):
            said = reading
            assert 0 < reading.end <= end
    last = known.read_last(text, (cat,))
    assert isinstance(last, Section | NotACall)
    assert 0 < last.end <= len(text)
    if said is not None and isinstance(said, Section):
        assert all(json.loads(call.arguments) is not ... for call in said.calls)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_without_tools_a_call_is_text(known, read):
    text = _written(known.name, {"n": 1})
    told = read(text, format=by_name(known.name), tool_choice=ToolMode.NONE)
    assert (told.content, told.calls) == (text, ())
