"""A request in the messages of held paths."""

from __future__ import annotations

from turnstile.conversation import Ending
from turnstile.history.digest import head_key
from turnstile.history.equality import ToolDefaults
from turnstile.history.walk import walk


def walked(dialogue):
    return walk(dialogue.forest, head_key("main"), tuple(dialogue.messages), ToolDefaults(()))


def test_a_walk_ends_where_no_path_goes_on(dialogue):
    dialogue.user("a").sampled("b").user("c").sampled("d").edit(2, text="e")
    found = walked(dialogue)
    assert (found.held_length_M, found.is_held) == (2, False)
    assert (found.spoken_M, found.origins_M) == (dialogue.messages, [0, 1, 2, 3])


def test_a_walk_along_a_whole_path_is_held(dialogue):
    dialogue.user("a").sampled("b").user("c").sampled("d").back_to(3)
    found = walked(dialogue)
    assert (found.held_length_M, found.is_held, found.repeat.node) == (3, True, dialogue.forest.nodes[0])


def test_an_answer_in_pieces_is_spoken_in_one(dialogue):
    dialogue.user("a").sampled("t", ("f", "{}"), ("g", "{}"))
    answer = dialogue.messages.pop()
    dialogue.assistant("t", calls=answer.calls[1:]).tool("r1").assistant("t", calls=answer.calls[:1]).tool("r0")
    found = walked(dialogue.user("b"))
    assert found.spoken_M == [dialogue.messages[0], answer, *dialogue.messages[2::2], dialogue.messages[-1]]
    assert (found.origins_M, found.positions_M, found.split_M) == ([0, 1, 2, 4, 5], [-1, -1, 1, 0, -1], {1})


def test_a_continuation_is_spoken_together_with_what_it_continues(dialogue):
    dialogue.ending = Ending.CONTINUE
    found = walked(dialogue.user("a").assistant("b ").sampled("c").user("d"))
    assert [message.text for message in found.spoken_M] == ["a", "b c", "d"]
    assert found.origins_M == [0, 1, 3]
