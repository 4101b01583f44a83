"""A completion and its path."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.conversation import Ending, Message, Past, Role, Text
from turnstile.generation import NodeRef
from turnstile.history.forest import Forest
from turnstile.journal import CallStarted
from turnstile.tokens import IdRun, join


def test_held_ids_are_all_that_was_fed_and_sampled(dialogue):
    dialogue.user("a").sampled("b").user("c").sampled("d")
    node = dialogue.forest.node(dialogue.ref)
    assert node.held_T == IdRun.of([100, 101, 102, 200, 201, 300, 301, 302, 400, 401])
    assert (node.length, node.length_M) == (10, 4)


def test_a_stop_token_that_was_put_aside_is_not_on_the_path_of_the_next(dialogue):
    dialogue.user("a").sampled("b").user("c").start()
    started = msgspec.structs.replace(dialogue.records.pop(), held_length=4)
    assert isinstance(started, CallStarted)
    forest = Forest.of([*dialogue.records, started])
    dialogue.forest = forest
    dialogue.commit(started, Message(Role.ASSISTANT, (Text("d"),)))
    first, second = forest.nodes
    assert first.held_T == IdRun.of([100, 101, 102, 200, 201])
    assert second.held_T == IdRun.of([100, 101, 102, 200, 300, 301, 302, 400, 401])
    assert second.runs.digest_of(second).hexdigest() == second.held_T.sha256()


@given(st.lists(st.integers(0, 8), min_size=1, max_size=12), st.permutations(range(12)))
@settings(max_examples=50, deadline=None)
def test_held_ids_do_not_depend_on_what_was_asked_for_before(new_dialogue, lengths, order):
    dialogue = new_dialogue.fresh()
    for turn, length in enumerate(lengths):
        dialogue.back_to(length).user(f"u{turn}").sampled(f"a{turn}")
    nodes = dialogue.forest.nodes
    for at in order:
        node = nodes[at % len(nodes)]
        pieces = [piece for step in node.path() for piece in (step.started.added_A, step.choice.ids_S)]
        assert node.held_T == join(pieces)
        assert node.runs.digest_of(node).hexdigest() == join(pieces).sha256()
        assert len(node.held_T) == node.length


def test_a_path_leads_from_the_root_and_children_stand_in_commit_order(dialogue):
    dialogue.user("a").sampled("b")
    other = dialogue.copy().user("d").sampled("e")
    dialogue.user("c").sampled("x")
    root, second, third = dialogue.forest.nodes
    assert other.ref == second.ref
    assert [node.ref for node in root.children] == [second.ref, third.ref]
    assert third.path() == (root, third)
    assert (root.parent, third.parent) == (None, root)


def test_messages_of_a_path_are_those_that_were_sent_and_handed_out(dialogue):
    dialogue.system("s").user("a").sampled("b").user("c").sampled("d", reasoning="r")
    node = dialogue.forest.node(dialogue.ref)
    assert node.messages_M == tuple(dialogue.messages)
    assert node.history_M == tuple(dialogue.messages[:-1])


def test_a_continued_answer_is_one_message_of_the_path(dialogue):
    dialogue.ending = Ending.CONTINUE
    dialogue.user("a").assistant("So ").sampled("it ").sampled("is").user("c")
    first, second = dialogue.forest.nodes
    assert [message.text for message in first.messages_M] == ["a", "So it "]
    assert [message.text for message in second.messages_M] == ["a", "So it is"]
    assert (second.choice.message.text, second.continues_parent, second.length_M) == ("is", True, 2)


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(("ask", "go on", "begin"))), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_what_is_counted_of_a_path_is_what_its_messages_show(new_dialogue, turns):
    dialogue = new_dialogue.fresh().user("first").sampled("answer")
    for turn, (length, how) in enumerate(turns):
        dialogue.back_to(max(1, length))
        is_answered = dialogue.messages[-1].role is Role.ASSISTANT
        dialogue.ending = Ending.ANSWER if how == "ask" else Ending.CONTINUE
        if how != "go on" or not is_answered:
            dialogue.user(f"u{turn}")
        if how == "begin":
            dialogue.assistant(f"b{turn}")
        if dialogue.messages[-1].role is Role.USER:
            dialogue.ending = Ending.ANSWER
        dialogue.sampled(f"a{turn}")
    for node in dialogue.forest.nodes:
        assert (node.past, node.before) == (Past().then(node.messages_M), Past().then(node.history_M))
    assert [node.past for node in Forest.of(dialogue.records).nodes] == [node.past for node in dialogue.forest.nodes]


def test_a_node_cannot_be_changed(dialogue):
    dialogue.user("a").sampled("b")
    with pytest.raises(AttributeError):
        dialogue.forest.nodes[0].ref = NodeRef("other")


def test_nodes_are_equal_by_what_was_recorded(dialogue):
    dialogue.user("a").sampled("b").user("c").sampled("d")
    again = Forest.of(dialogue.records)
    assert again.nodes == dialogue.forest.nodes
    assert len({*again.nodes, *dialogue.forest.nodes}) == 2
    assert again.nodes[0] != again.nodes[1]
