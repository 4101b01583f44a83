"""What holds for every conversation: continuing finds its own answer, an edit is found where it was made."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from turnstile.conversation import Role, Text, ToolCall
from turnstile.generation import Forked
from turnstile.history.forest import Forest
from turnstile.history.match import match
from turnstile.reasons import ForkReason

TREES = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["text", "call", "calls"])), min_size=1, max_size=14)
TURNS = st.lists(st.sampled_from(["text", "call", "calls"]), min_size=1, max_size=6)


def turn(dialogue, kind, name):
    """One question and its answer; calls are followed by their results and another answer."""
    dialogue.user(f"question {name}")
    if kind == "text":
        return dialogue.sampled(f"answer {name}", reasoning=f"thought {name}")
    count = 1 if kind == "call" else 2
    dialogue.sampled(f"calling {name}", *((f"f{at}", f'{{"x":{at},"y":"{name}"}}') for at in range(count)))
    for at, call in enumerate(dialogue.messages[-1].calls):
        dialogue.tool(f"result {at} of {name}", call.call_id)
    return dialogue.sampled(f"done {name}")


def tree(new_dialogue, steps, names):
    """A rollout whose client goes back to some completion before each turn."""
    dialogue = new_dialogue.fresh().system("s")
    for (back_to, kind), name in zip(steps, names, strict=False):
        nodes = dialogue.forest.nodes
        if nodes:
            at = back_to % (len(nodes) + 1)
            dialogue.messages = list(nodes[at].messages_M) if at < len(nodes) else dialogue.messages[:1]
            for call in dialogue.messages[-1].calls:
                dialogue.tool(f"result again for {name}", call.call_id)
        turn(dialogue, kind, name)
    return dialogue


def renamed(message):
    """The message as a client brings it back that has its own ids, spelling of arguments, and no thoughts."""
    calls = tuple(
        ToolCall(f"my-{call.call_id}", call.name, call.arguments.replace(",", " , ").replace("1", "1.0", 1))
        if call.name == "f1"
        else ToolCall(f"my-{call.call_id}", call.name, call.arguments)
        for call in message.calls
    )
    call_id = f"my-{message.call_id}" if message.call_id else ""
    return msgspec.structs.replace(message, calls=calls, call_id=call_id, reasoning="")


@given(TREES)
@settings(max_examples=40, deadline=None)
def test_continuing_any_held_answer_matches_exactly_it(new_dialogue, steps):
    dialogue = tree(new_dialogue, steps, range(100))
    for node in dialogue.forest.nodes:
        client = dialogue.other(*node.messages_M)
        found = client.user("and now?").match()
        assert (found.parent.ref, found.parent.held_T, found.covered_M) == (node.ref, node.held_T, node.length_M)
        assert (*found.parent.history_M, found.parent.message) == node.messages_M
        assert (found.departure is None) == (not node.children)
        assert found.notes == ()


@given(TREES)
@settings(max_examples=25, deadline=None)
def test_names_of_ids_spellings_of_numbers_and_missing_thoughts_change_no_match(new_dialogue, steps):
    dialogue = tree(new_dialogue, steps, range(100))
    for node in dialogue.forest.nodes:
        exact = dialogue.other(*node.messages_M).user("and now?").match()
        for _ in range(2):
            assert dialogue.other(*map(renamed, node.messages_M)).user("and now?").match() == exact


@given(TREES)
@settings(max_examples=25, deadline=None)
def test_equal_answers_are_told_apart_by_their_ids_or_are_equal(new_dialogue, steps):
    dialogue = tree(new_dialogue, steps, ["same"] * 100)
    for node in dialogue.forest.nodes:
        found = dialogue.other(*node.messages_M).user("and now?").match()
        assert (*found.parent.history_M, found.parent.message) == node.messages_M


@given(TREES)
@settings(max_examples=25, deadline=None)
def test_a_match_after_a_restart_is_the_match_before_it(new_dialogue, steps):
    dialogue = tree(new_dialogue, steps, range(100))
    restarted = Forest.of(dialogue.records)
    for node in dialogue.forest.nodes:
        client = dialogue.other(*map(renamed, node.messages_M)).user("and now?")
        assert match(restarted, client.head, client.call) == client.match()


@given(TURNS, st.data())
@settings(max_examples=80, deadline=None)
def test_an_edit_forks_where_it_was_made(new_dialogue, kinds, data):
    dialogue = new_dialogue.fresh().system("s")
    for name, kind in enumerate(kinds):
        turn(dialogue, kind, name)
    at = data.draw(st.integers(1, len(dialogue.messages) - 1), label="edited message")
    was = dialogue.messages[at]
    place = data.draw(st.integers(0, len(was.text)), label="edited character")
    now = was.text[:place] + "#" + was.text[place:]
    dialogue.edit(at, text=now).user("and now?")
    found = dialogue.match()
    is_answer = was.role is Role.ASSISTANT
    reason = ForkReason.ASSISTANT_EDITED if is_answer else ForkReason.MESSAGE_EDITED
    assert found.departure == Forked(reason, at, place, was.text, now)
    held = [] if found.parent is None else [*found.parent.history_M, found.parent.message]
    assert held == dialogue.messages[: found.covered_M]
    assert all(message.role is not Role.ASSISTANT for message in dialogue.messages[found.covered_M : at])


@given(TURNS, st.data())
@settings(max_examples=60, deadline=None)
def test_another_message_behind_an_earlier_answer_is_a_rewind_to_it(new_dialogue, kinds, data):
    dialogue = new_dialogue.fresh()
    for name, kind in enumerate(kinds):
        turn(dialogue, kind, name)
    inner = [node for node in dialogue.forest.nodes if node.children]
    if not inner:
        return
    node = data.draw(st.sampled_from(inner), label="gone back to")
    found = dialogue.other(*node.messages_M).user("otherwise").match()
    assert (found.parent.ref, found.departure.message_index) == (node.ref, node.length_M)
    assert found.departure.reason is ForkReason.REWOUND


@given(TURNS, st.lists(st.integers(1, 3), max_size=3))
@settings(max_examples=40, deadline=None)
def test_text_that_is_cut_into_parts_is_the_same_text(new_dialogue, kinds, cuts):
    dialogue = new_dialogue.fresh()
    for name, kind in enumerate(kinds):
        turn(dialogue, kind, name)
    whole = dialogue.copy().user("and now?").match()
    for at, message in enumerate(dialogue.messages):
        text, parts = message.text, []
        for cut in cuts:
            parts.append(Text(text[:cut]))
            text = text[cut:]
        dialogue.messages[at] = msgspec.structs.replace(message, parts=(*parts, Text(text)))
    found = dialogue.user("and now?").match()
    assert (found.parent, found.departure) == (whole.parent, None)
