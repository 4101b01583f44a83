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


def test_a_path_is_repeated_only_if_all_of_it_is(dialogue):
    respelled(dialogue).sampled("c").user("d")
    first, second = dialogue.forest.nodes
    echoes = dialogue.forest.echoes
    dialogue.match()
    # The result came back under the client's id, the path holds it under the id that was handed out.
    assert echoes.repeated([second], tuple(dialogue.messages)) is None
    assert echoes.repeated([second, first], tuple(dialogue.messages)).node == first
    assert echoes.repeated([first], tuple(dialogue.messages[:1])) is None
    assert echoes.repeated([first], (dialogue.messages[1], *dialogue.messages[1:])) is None


def test_what_is_remembered_changes_no_match(dialogue):
    respelled(dialogue).sampled("c ").edit(3, text="c").user("d")
    before = match(Forest.of(dialogue.records), dialogue.head, dialogue.call)
    assert [dialogue.match(), dialogue.match()] == [before, before]
