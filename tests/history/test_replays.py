"""Which messages behind the held prefix are answers of the model."""

from __future__ import annotations

import pytest

from turnstile.conversation import Ending, ToolCall
from turnstile.generation import Cut, NodeRef
from turnstile.reasons import IncompleteReason, NoteCode


def replays(dialogue):
    return [(each.index, each.message_index, str(each.ref)) for each in dialogue.match().replays]


def refs(dialogue):
    return [str(node.ref) for node in dialogue.forest.nodes]


@pytest.fixture
def rewritten(dialogue):
    """Three answers, and a client that changed what stood behind the first."""
    dialogue.user("u1").sampled("a1").user("u2").sampled("a2").user("u3").sampled("a3").user("u4")
    return dialogue.edit(2, text="changed")


def test_answers_behind_an_edit_are_found_with_what_was_sampled(rewritten):
    first, second, third = rewritten.forest.nodes
    found = rewritten.match()
    assert (found.parent.ref, found.covered_M) == (first.ref, 2)
    assert [(each.index, each.message_index, each.ref) for each in found.replays] == [
        (1, 3, second.ref),
        (3, 5, third.ref),
    ]
    assert [each.ids_S for each in found.replays] == [second.choice.ids_S, third.choice.ids_S]
    assert found.notes == ()


def test_nothing_is_replayed_of_a_plain_continuation(dialogue):
    dialogue.user("u1").sampled("a1").user("u2")
    assert dialogue.match().replays == ()


def test_an_answer_that_was_changed_or_never_handed_out_is_no_replay(rewritten):
    rewritten.edit(3, text="never said")
    assert replays(rewritten) == [(3, 5, refs(rewritten)[2])]
    assert [note.code for note in rewritten.match().notes] == [NoteCode.INJECTED_ASSISTANT]


def test_an_answer_without_trustworthy_ids_is_text(dialogue):
    dialogue.user("u1").sampled("a1", incomplete=(IncompleteReason.IDS_INCOMPLETE,)).user("u2")
    dialogue.edit(0, text="changed")
    found = dialogue.match()
    assert (found.replays, [note.code for note in found.notes]) == ((), [NoteCode.RERENDERED_HISTORY])


def test_an_answer_of_another_head_is_text(rewritten):
    rewritten.head_name = "other"
    found = rewritten.match()
    assert (found.replays, [note.code for note in found.notes]) == ((), [NoteCode.RERENDERED_HISTORY])


def test_an_answer_that_the_client_began_is_text(dialogue):
    dialogue.ending = Ending.CONTINUE
    dialogue.user("u1").assistant("be").sampled("gun")
    dialogue.ending = Ending.ANSWER
    dialogue.back_to(1).assistant("begun").user("u2").edit(0, text="changed")
    assert replays(dialogue) == []


def test_a_last_answer_that_is_to_be_continued_is_no_replay(dialogue):
    dialogue.user("u1").sampled("a1").edit(0, text="changed")
    dialogue.ending = Ending.CONTINUE
    assert replays(dialogue) == []


def test_a_minted_id_names_the_answer_among_equal_ones(dialogue):
    dialogue.user("u1").sampled("", ("f", "{}")).tool("r").sampled("", ("f", "{}")).tool("r")
    dialogue.edit(0, text="changed")
    del dialogue.messages[1:3]
    assert [ref for *_, ref in replays(dialogue)] == [refs(dialogue)[1]]


def test_without_ids_equal_answers_come_back_in_the_order_in_which_they_were_given(dialogue):
    dialogue.user("u1").sampled("ok").user("u2").sampled("ok").user("u3").sampled("ok").user("u4")
    dialogue.edit(0, text="changed")
    assert [ref for *_, ref in replays(dialogue)] == refs(dialogue)


def test_of_equal_samples_of_one_prompt_the_delivered_one_is_meant(dialogue):
    dialogue.user("u1").sampled("ok")
    again = dialogue.back_to(1).sampled("ok").undelivered()
    again.user("u2").edit(0, text="changed")
    assert [ref for *_, ref in replays(again)] == refs(dialogue)[:1]


def test_arguments_that_a_harness_added_are_forgiven_as_in_a_plain_history(dialogue):
    dialogue.user("u1").sampled("", ("f", '{"a":1}')).tool("r").edit(0, text="changed")
    was = dialogue.messages[1].calls[0]
    dialogue.edit(1, calls=(ToolCall(was.call_id, "f", '{"a":1,"b":2}'),))
    assert [ref for *_, ref in replays(dialogue)] == refs(dialogue)
    dialogue.edit(1, calls=(ToolCall("renamed", "f", '{"a":1,"b":2}'),))
    assert replays(dialogue) == []


def test_how_the_answer_ended_comes_with_it(dialogue):
    dialogue.user("u1").sampled("a1", cut=Cut.CONTENT, stop_string="x").user("u2").edit(0, text="changed")
    (found,) = dialogue.match().replays
    assert (found.cut, found.stop_string, found.ref) == (Cut.CONTENT, "x", NodeRef(refs(dialogue)[0]))
