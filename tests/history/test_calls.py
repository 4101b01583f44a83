"""Which answers a call shows to have arrived."""

from __future__ import annotations

import msgspec
import pytest

from turnstile.conversation import Message, Role, Text
from turnstile.generation import NodeRef
from turnstile.history.calls import newly_heard


def heard(dialogue) -> dict[str, bool]:
    return {call_id: state.heard for call_id, state in dialogue.forest.calls.items()}


def test_a_commit_alone_says_nothing_of_its_delivery(dialogue):
    dialogue.user("a").sampled("b")
    assert heard(dialogue) == {"c1": False}


def test_a_call_that_builds_on_an_answer_shows_that_it_arrived_and_one_beside_it_does_not(dialogue):
    other = dialogue.user("a").sampled("b").other()
    other.user("another conversation").sampled("x")
    assert list(heard(dialogue).values()) == [False, False]
    dialogue.user("c").start()
    assert list(heard(dialogue).values()) == [True, False, False]


def test_one_whose_last_byte_never_left_can_be_asked_for_also_once_a_call_has_built_on_it(dialogue):
    dialogue.user("a").sampled("b").undelivered()
    later = dialogue.user("c").start()
    assert list(heard(dialogue).values()) == [False, False]
    assert list(newly_heard(msgspec.structs.replace(later, heard=("c1",)), dialogue.forest.calls)) == ["c1"]


@pytest.mark.parametrize("shows", [{"heard": ("c1",)}, {"replayed": (NodeRef("c1"),)}])
def test_an_answer_that_a_call_names_or_brings_back_has_arrived_once(dialogue, shows):
    dialogue.other().user("a").sampled("b")
    later = msgspec.structs.replace(dialogue.user("c").start(), **shows)
    states = dict(dialogue.forest.calls)
    assert list(newly_heard(later, states)) == ["c1"]
    states["c1"] = msgspec.structs.replace(states["c1"], heard=True)
    assert list(newly_heard(later, states)) == []


def test_one_that_is_gone_from_the_journal_or_has_no_answer_is_passed_over(dialogue):
    dialogue.user("a").fail()
    later = dialogue.user("b").start()
    assert list(newly_heard(msgspec.structs.replace(later, heard=("c1", "c9")), dialogue.forest.calls)) == []


def test_of_equal_answers_to_equal_requests_the_one_that_is_named_is_the_one_that_was_built_on(dialogue):
    first, second = dialogue.user("a").start(), dialogue.other().user("a").start()
    for started in (first, second):
        dialogue.commit(started, Message(Role.ASSISTANT, (Text("x"),)))
    later = dialogue.other().user("b").start()
    asked = {call_id: msgspec.structs.replace(state.started, body_digest="same")
             for call_id, state in dialogue.forest.calls.items()}  # fmt: skip
    states = {call_id: msgspec.structs.replace(state, started=asked[call_id])
              for call_id, state in dialogue.forest.calls.items()}  # fmt: skip
    shows = msgspec.structs.replace(later, parent=NodeRef(second.call_id))
    assert list(newly_heard(shows, states)) == [second.call_id]
    assert list(newly_heard(msgspec.structs.replace(shows, heard=(first.call_id,)), states)) == [first.call_id]
