"""Which completions stand at a run of messages."""

from __future__ import annotations

from turnstile.conversation import Ending
from turnstile.history.digest import head_key, weak


def test_a_completion_is_found_at_its_prompt_its_answer_and_along_its_messages(dialogue):
    dialogue.user("a").user("b").sampled("c")
    node = dialogue.forest.nodes[0]
    index = dialogue.forest.index
    at_answer, at_prompt, at_head = index.get(node.key), index.get(node.prompt_key), index.get(head_key("main"))
    assert (at_answer.answers, at_answer.samples) == ([node], [])
    assert (at_prompt.answers, at_prompt.samples) == ([], [node])
    assert [prefix.through for prefix in (at_answer, at_prompt, at_head)] == [node] * 3


def test_the_latest_completion_that_goes_on_from_a_run_is_named(dialogue):
    dialogue.user("a").sampled("b").user("c").sampled("d")
    first, second = dialogue.forest.nodes
    assert dialogue.forest.index.get(first.key).through == second


def test_a_run_that_is_on_no_path_is_unknown(dialogue):
    dialogue.user("a").fail()
    assert dialogue.forest.index.get(head_key("main")) is None


def test_completions_are_found_by_the_ids_that_they_handed_out(dialogue):
    dialogue.user("a").sampled("", ("f", "{}"), ("g", "{}"))
    node = dialogue.forest.nodes[0]
    assert [list(dialogue.forest.index.minted(name)) for name in ("c1-0", "c1-1", "c9-0", "")] == [
        [node],
        [node],
        [],
        [],
    ]


def test_an_answer_is_known_with_the_heads_that_it_was_given_under(dialogue):
    dialogue.user("a").sampled("b")
    dialogue.head_name = "other"
    dialogue.back_to(1).sampled("b")
    index = dialogue.forest.index
    assert index.heads_of_answer(weak(dialogue.messages[1])) == {"main", "other"}
    assert index.heads_of_answer(weak(dialogue.messages[0])) == frozenset()


def test_a_completion_that_goes_on_writing_is_found_at_what_it_continues(dialogue):
    dialogue.ending = Ending.CONTINUE
    dialogue.user("a").sampled("b").sampled("c")
    first, second = dialogue.forest.nodes
    assert dialogue.forest.index.get(first.key).continuations == [second]
    assert first.prompt_key == second.prompt_key


def test_answers_of_equal_words_are_listed_in_commit_order_with_their_ranks(dialogue):
    dialogue.user("a").sampled("b").user("c").sampled("b").user("d").sampled("e")
    first, second, third = dialogue.forest.nodes
    index = dialogue.forest.index
    assert index.handed_out(weak(dialogue.messages[1])) == [first, second]
    assert index.handed_out(weak(dialogue.messages[0])) == ()
    assert [index.rank(node.ref) for node in (first, second, third)] == [0, 1, 2]
