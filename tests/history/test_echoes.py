"""Spellings that were compared once are known."""

from __future__ import annotations

from turnstile.conversation import ToolCall
from turnstile.history.forest import Forest
from turnstile.history.match import match


def respelled(dialogue):
    dialogue.user("a").sampled(" b ", ("f", '{"x": 1}'))
    return dialogue.edit(1, text="b", calls=(ToolCall("other", "f", '{"x":1.0}'),)).tool("r", "other")


def test_a_spelling_is_known_once_it_was_accepted(dialogue):
    sent = respelled(dialogue).messages[1]
    node, echoes = dialogue.forest.nodes[0], dialogue.forest.echoes
    assert echoes.verdict(node, sent) is None
    dialogue.match()
    assert echoes.verdict(node, sent).forgiven == ("normalised:parser_trim",)


def test_a_path_is_repeated_once_all_its_spellings_are_known(dialogue):
    respelled(dialogue).sampled("c").user("d")
    first, second = dialogue.forest.nodes
    echoes, messages = dialogue.forest.echoes, tuple(dialogue.messages)
    # The result came back under the client's id, the path holds it under the id that was handed out.
    assert echoes.repeated([second], messages) is None
    assert echoes.repeated([second, first], messages).node == first
    dialogue.match()
    assert echoes.repeated([second], messages).node == second
    assert echoes.repeated([second], messages).forgiven == ((1, "normalised:parser_trim"),)


def test_a_path_is_not_repeated_by_fewer_or_other_messages(dialogue):
    respelled(dialogue).sampled("c").user("d").match()
    second = dialogue.forest.nodes[1]
    echoes, messages = dialogue.forest.echoes, tuple(dialogue.messages)
    assert echoes.repeated([second], messages[:3]) is None
    assert echoes.repeated([second], (messages[4], *messages[1:])) is None
    # The answer's own ids with a result under another: which call it answers is to be found out anew.
    handed_out = dialogue.forest.nodes[0].message
    assert echoes.repeated([second], (messages[0], handed_out, *messages[2:])) is None


def test_what_is_remembered_changes_no_match(dialogue):
    respelled(dialogue).sampled("c ").edit(3, text="c").user("d")
    before = match(Forest.of(dialogue.records), dialogue.head, dialogue.call)
    assert [dialogue.match(), dialogue.match()] == [before, before]


def test_what_was_overlooked_in_an_answer_that_the_client_wrote_is_remembered_too(dialogue):
    dialogue.user("a").assistant(" b ").user("c").sampled("d").edit(1, text="b").user("e")
    before = match(Forest.of(dialogue.records), dialogue.head, dialogue.call)
    assert [(note.code, note.detail) for note in before.notes] == [("normalised:parser_trim", "message 1")]
    assert [dialogue.match(), dialogue.match()] == [before, before]
