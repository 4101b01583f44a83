from __future__ import annotations

import time

import pytest

from turnstile.generation import Cut
from turnstile.parsing.answer import AnswerReader, Ending, Grammar, Pieces
from turnstile.parsing.formats import THINK, tool_call_format

CALL = '<tool_call>{"name": "ls", "arguments": {}}</tool_call>'


@pytest.fixture
def reader(ls):
    return lambda calls="hermes": AnswerReader(Grammar(THINK, tool_call_format(calls), (ls,)))


def together(found):
    """What was found, its order left out."""
    return Pieces(
        "".join(each.reasoning for each in found),
        "".join(each.content for each in found),
        tuple(call for each in found for call in each.calls),
    )


def said(reader, *pieces):
    """What each piece makes certain: reasoning, content, names of calls."""
    out = []
    for piece in pieces:
        reader.feed(piece)
        found = together(reader.take())
        out.append((found.reasoning, found.content, [call.name for call in found.calls]))
    return out


def test_content_leaves_at_once_but_for_the_whitespace_that_a_call_would_swallow(reader):
    assert said(reader(), "Hello", " ", "world", "\n") == [
        ("", "Hello", []),
        ("", "", []),
        ("", " world", []),
        ("", "", []),
    ]


def test_what_may_become_a_marker_is_held_until_it_does_not(reader):
    assert said(reader(), "a <", "tool", "box>", "b") == [
        ("", "a", []),
        ("", "", []),
        ("", " <toolbox>", []),
        ("", "b", []),
    ]


def test_reasoning_leaves_as_it_comes(reader):
    assert said(reader(), "<thi", "nk>\nI", " see", ".\n</", "think>\n\n", "Yes") == [
        ("", "", []),
        ("I", "", []),
        (" see", "", []),
        (".", "", []),
        ("", "", []),
        ("", "Yes", []),
    ]


def test_a_call_leaves_when_it_is_whole(reader):
    assert said(reader(), CALL[:20], CALL[20:-1], CALL[-1] + "\n") == [("", "", []), ("", "", []), ("", "", ["ls"])]


def test_a_json_answer_of_a_llama_waits_for_its_first_key_only(reader):
    assert said(reader("llama3_json"), '{"', "answer", '": 1') == [
        ("", "", []),
        ("", '{"answer', []),
        ("", '": 1', []),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", Cut.CONTENT),
        ("", Cut.CONTENT),
        ("<think>a", Cut.REASONING),
        ("<think>a</think>", Cut.CONTENT),
        ("<tool_call>{", Cut.CALL),
        (CALL, Cut.CONTENT),
        (f"<think>{CALL}", Cut.REASONING),
    ],
)
@pytest.mark.parametrize("ending", Ending)
def test_the_place_where_an_answer_ends_is_known(reader, text, expected, ending):
    answer = reader()
    answer.feed(text)
    assert answer.finish(ending) is expected


def test_whole_calls_of_an_unclosed_block_are_delivered_when_it_is_cut(reader):
    answer = reader()
    answer.feed(f'<think>so {CALL} {CALL} <tool_call>{{"na')
    answer.finish(Ending.CUT)
    found = together(answer.take())
    assert (found.reasoning, [call.name for call in found.calls]) == ("so", ["ls", "ls"])
    assert found.content == ' <tool_call>{"na'


def test_what_stands_behind_a_call_is_a_piece_of_its_own(reader):
    answer = reader()
    answer.feed(f"<think>r</think>Hi{CALL}{CALL} done{CALL}")
    answer.finish(Ending.STOPPED)
    assert [(each.reasoning, each.content, len(each.calls)) for each in answer.take()] == [
        ("r", "Hi", 2),
        ("", " done", 1),
    ]
    assert answer.take() == ()


def test_a_long_call_costs_in_proportion_to_its_length(reader):
    def seconds(length):
        answer = reader()
        started = time.process_time()
        answer.feed('<tool_call>{"name": "ls", "arguments": {"p": "')
        for _ in range(length):
            answer.feed("text ")
        answer.feed('"}}</tool_call>')
        assert len(together(answer.take()).calls) == 1
        return time.process_time() - started

    # Twenty times the length: a quadratic reader would take four hundred times as long.
    assert seconds(100_000) < 100 * max(seconds(5_000), 0.005)
