from __future__ import annotations

from datetime import UTC, datetime

import pytest

from turnstile.conversation import answer_id
from turnstile.generation import NodeRef
from turnstile.history.recognised import Recognised, recognised
from turnstile.journal import RolloutOpened
from turnstile.reasons import NoteCode


@pytest.fixture
def opened(dialogue):
    """A conversation whose rollout has its first record, so that its answers have names."""
    dialogue.keep(RolloutOpened(rollout_id="r", attempt=2, opened_at=datetime(2026, 12, 1, tzinfo=UTC)))
    return dialogue


def named(ref: NodeRef, attempt: int = 2) -> str:
    return answer_id("r", attempt, str(ref))


def test_the_thinking_of_a_marked_answer_is_the_one_that_was_handed_out(opened):
    opened.user("2+2?").sampled("4", reasoning="two and two").edit(1, reasoning="in short", answer_id=named(opened.ref))
    assert opened.user("why?").found() == (opened.ref, 2, None, [NoteCode.REASONING_RESTORED])


def test_the_same_change_without_a_mark_is_an_edit(opened):
    opened.user("2+2?").sampled("4", reasoning="two and two").edit(1, reasoning="in short")
    parent, _, departure, _ = opened.user("why?").found()
    assert (parent, departure.reason.value) == (None, "assistant_edited")


def test_a_mark_does_not_excuse_another_text(opened):
    opened.user("2+2?").sampled("4", reasoning="r").edit(1, text="5", answer_id=named(opened.ref))
    parent, _, departure, _ = opened.user("why?").found()
    assert (parent, departure.reason.value) == (None, "assistant_edited")


def test_thinking_that_was_left_out_is_put_back_without_a_word(opened):
    opened.user("2+2?").sampled("4", reasoning="r").edit(1, reasoning="", answer_id=named(opened.ref))
    assert opened.user("why?").found() == (opened.ref, 2, None, [])


def test_of_equal_answers_the_marked_one_is_taken(opened):
    opened.user("2+2?").sampled("4", reasoning="r")
    first = opened.ref
    opened.back_to(1).sampled("4", reasoning="r").edit(1, answer_id=named(first))
    found = opened.user("why?").match()
    assert found.parent.ref == first
    assert [str(note.code) for note in found.notes] == ["match_ambiguous"]


@pytest.mark.parametrize(
    "mark",
    ["r-2-c999", "r-2-", "r-c1", "r-3-c1", "other-2-c1", "r-2-c1.7", "r-2-c1.x", "r-2-c1.99999", "x"],
)
def test_a_mark_of_nothing_that_is_held_here_says_nothing(opened, mark):
    opened.user("2+2?").sampled("4", reasoning="r").edit(1, reasoning="other", answer_id=mark)
    messages = tuple(opened.messages)
    assert recognised(opened.forest, messages) == Recognised(messages, ())
