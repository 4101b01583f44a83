"""Answers that the engine's own parser reads."""

from __future__ import annotations

from itertools import count

import pytest

from turnstile.conversation import (
    Message,
    ReplyDelta,
    ReplyFinish,
    Role,
    Text,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from turnstile.generation import Cut, Delta, Finish, Generation, LogprobsMode
from turnstile.parsing.engine_reading import EngineReading, parser_for
from turnstile.parsing.formats import ENGINES_OWN, AnswerFormat
from turnstile.parsing.parser import Parser, ParserSetup
from turnstile.tokens import IdRun


class NoVocabulary:
    """The engine's words are all that is read."""

    size = 0

    def token_bytes(self, token_id):
        raise AssertionError(token_id)

    def is_special(self, token_id):
        raise AssertionError(token_id)


@pytest.fixture
def setup():
    numbers = count(1)
    return ParserSetup(NoVocabulary(), ENGINES_OWN, lambda: f"minted{next(numbers)}", choice=2)


def said(reasoning="", content="", calls=()):
    return Delta(IdRun.of([1]), said=ReplyDelta(0, reasoning, content, calls))


def ended(finish=Finish.STOP, stop_string="", last=None):
    return Generation(
        IdRun.of([1]), None, finish, finish.value, Usage(1, 1), LogprobsMode.NONE, None, stop_string, said=last
    )


def test_the_engine_s_words_go_out_as_they_come_under_ids_of_ours(setup):
    reading = EngineReading(setup)
    told = [
        *reading.feed(said(reasoning="Hm")),
        *reading.feed(Delta(IdRun.of([1]))),
        *reading.feed(said(content="I look.", calls=(ToolCallDelta(0, "theirs", "look"),))),
        *reading.feed(said(calls=(ToolCallDelta(0, arguments='{"a":'),))),
        *reading.feed(said(calls=(ToolCallDelta(0, arguments="1}"), ToolCallDelta(1, "theirs2", "go", "{}")))),
    ]
    parsed = reading.finish(ended())
    assert told == [
        ReplyDelta(2, reasoning="Hm"),
        ReplyDelta(2, content="I look.", calls=(ToolCallDelta(0, "minted1", "look"),)),
        ReplyDelta(2, calls=(ToolCallDelta(0, arguments='{"a":'),)),
        ReplyDelta(
            2,
            calls=(
                ToolCallDelta(0, arguments="1}"),
                ToolCallDelta(0, is_last=True),
                ToolCallDelta(1, "minted2", "go"),
                ToolCallDelta(1, arguments="{}"),
            ),
        ),
    ]
    assert parsed.flush == (ReplyDelta(2, calls=(ToolCallDelta(1, is_last=True),)),)
    assert parsed.message == Message(
        Role.ASSISTANT,
        (Text("I look."),),
        "Hm",
        (ToolCall("minted1", "look", '{"a":1}'), ToolCall("minted2", "go", "{}")),
    )
    assert (parsed.finish, parsed.cut) == (ReplyFinish.TOOL_CALLS, Cut.NONE)


def test_what_the_engine_says_only_at_the_end_is_told_at_the_end(setup):
    reading = EngineReading(setup)
    parsed = reading.finish(ended(last=ReplyDelta(0, "Hm", "Yes.", (ToolCallDelta(0, "x", "go", "{}"),))))
    calls = (ToolCallDelta(0, "minted1", "go"), ToolCallDelta(0, arguments="{}"))
    assert parsed.flush == (
        ReplyDelta(2, "Hm", "Yes.", calls),
        ReplyDelta(2, calls=(ToolCallDelta(0, is_last=True),)),
    )


def test_log_probabilities_leave_with_their_ids_whether_or_not_anything_was_read(setup):
    scored = (TokenLogprob(b"a", -0.5),)
    told = EngineReading(setup).feed(Delta(IdRun.of([1]), scored))
    assert told == (ReplyDelta(2, logprobs=scored),)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (said(reasoning="Hm"), Cut.REASONING),
        (said(reasoning="Hm", content="So"), Cut.CONTENT),
        (said(content="So", calls=(ToolCallDelta(0, "x", "go", "{"),)), Cut.CALL),
    ],
)
def test_a_cut_answer_says_where_it_was_cut(setup, words, place):
    reading = EngineReading(setup)
    reading.feed(words)
    parsed = reading.finish(ended(Finish.LENGTH))
    assert (parsed.finish, parsed.cut) == (ReplyFinish.LENGTH, place)


def test_a_stop_string_ends_an_answer_in_its_text(setup):
    reading = EngineReading(setup)
    reading.feed(said(content="So"))
    parsed = reading.finish(ended(stop_string="END"))
    assert (parsed.finish, parsed.cut, parsed.stop_string) == (ReplyFinish.STOP, Cut.CONTENT, "END")


def test_the_format_says_who_reads(setup):
    assert isinstance(parser_for(setup), EngineReading)
    own = ParserSetup(NoVocabulary(), AnswerFormat(None, "none"), lambda: "")
    assert isinstance(parser_for(own), Parser)
