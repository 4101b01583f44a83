"""Which answers a call shows to have arrived."""

from __future__ import annotations

import msgspec

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


def test_an_answer_that_a_call_names_or_brings_back_has_arrived_once(dialogue):
    for text in ("a", "b", "c"):
        dialogue.other().user(text).sampled(text)
    later = dialogue.user("d").start()
    named = msgspec.structs.replace(later, heard=("c1",), replayed=(NodeRef("c3"),))
    assert sorted(newly_heard(named, dialogue.forest.calls)) == ["c1", "c3"]
    states = dict(dialogue.forest.calls)
    for call_id in ("c1", "c3"):
        states[call_id] = msgspec.structs.replace(states[call_id], heard=True)
    assert list(newly_heard(named, states)) == []


def test_one_that_is_gone_from_the_journal_or_has_no_answer_is_passed_over(dialogue):
    dialogue.user("a").fail()
    later = dialogue.user("b").start()
    assert list(newly_heard(msgspec.structs.replace(later, heard=("c1", "c9")), dialogue.forest.calls)) == []
