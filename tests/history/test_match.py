"""What a request builds on: the cases of classes A, B, C, H and J that are about matching."""

from __future__ import annotations

import itertools
import random

import pytest

from turnstile.conversation import Ending, Message, Role, Text, ToolCall, ToolSpec
from turnstile.generation import Forked, Note
from turnstile.reasons import ForkReason, NoteCode
from turnstile.tokens import IdRun, LogprobRun

NOTHING_NOTED: list[str] = []
EDIT = '{"file_path":"a.py","old_string":"x","new_string":"y"}'
EDIT_TOOL = ToolSpec(
    "Edit",
    '{"type":"function","function":{"name":"Edit","parameters":{"type":"object","properties":'
    '{"file_path":{"type":"string"},"replace_all":{"type":"boolean","default":false},"mode":{"type":"string"}}}}}',
)


def with_text(message: Message, *texts: str) -> Message:
    return Message(message.role, tuple(map(Text, texts)), calls=message.calls, reasoning=message.reasoning)


# plain conversations


def test_a_history_that_grew_at_its_end_continues_the_last_answer(dialogue):
    dialogue.system("s").user("2+2?").sampled("4").user("3+3?").sampled("6")
    assert dialogue.user("4+4?").found() == (dialogue.ref, 5, None, NOTHING_NOTED)


def test_a_match_is_a_snapshot_of_the_parent_path(dialogue):
    dialogue.user("2+2?").sampled("4").user("3+3?").sampled("6")
    history = tuple(dialogue.messages)
    held = dialogue.user("4+4?").match()
    assert held.parent.held_T == IdRun.of([100, 101, 102, 200, 201, 300, 301, 302, 400, 401])
    assert (*held.parent.history_M, held.parent.message) == history
    assert held.new_M == (Message(Role.USER, (Text("4+4?"),)),)


def test_a_request_that_ends_in_a_held_answer_matches_it(dialogue):
    dialogue.user("2+2?").sampled("4")
    dialogue.ending = Ending.CONTINUE
    assert dialogue.found() == (dialogue.ref, 2, None, NOTHING_NOTED)
    assert dialogue.match().new_M == ()


def test_an_answer_that_was_continued_is_matched_in_one_piece_or_two(dialogue):
    dialogue.user("count").sampled("one, ")
    first = dialogue.ref
    dialogue.sampled("two")
    assert dialogue.copy().user("on").found() == (dialogue.ref, 3, None, NOTHING_NOTED)
    joined = dialogue.other(*dialogue.messages[:1]).assistant("one, two").user("on")
    assert joined.found() == (dialogue.ref, 2, None, NOTHING_NOTED)
    assert joined.match().parent.history_M == (dialogue.messages[0],)
    begun = dialogue.other(*dialogue.messages[:2]).user("stop")
    assert begun.found() == (first, 2, Forked(ForkReason.REWOUND, message_index=2, now="stop"), NOTHING_NOTED)


@pytest.mark.parametrize("texts", [("So: ", "yes"), ("So: yes",), ("yes",)])
def test_an_answer_to_a_prefill_is_matched_with_and_without_it(dialogue, texts):
    dialogue.ending = Ending.CONTINUE
    dialogue.user("yes?").assistant("So: ").sampled("yes")
    dialogue.ending = Ending.ANSWER
    again = dialogue.other(dialogue.messages[0])
    for text in texts:
        again.assistant(text)
    assert again.user("sure?").found() == (dialogue.ref, 1 + len(texts), None, NOTHING_NOTED)
    again.sampled("sure").user("really?")
    assert again.found() == (again.ref, 3 + len(texts), None, NOTHING_NOTED)


def test_few_shot_answers_of_the_client_are_noted_and_do_not_hinder(dialogue):
    dialogue.user("1+1?").assistant("2").user("2+2?")
    assert dialogue.found()[3] == ["injected_assistant"]
    dialogue.sampled("4").user("3+3?")
    assert dialogue.found() == (dialogue.ref, 4, None, NOTHING_NOTED)


def test_a_prefill_is_no_injected_answer(dialogue):
    dialogue.ending = Ending.CONTINUE
    assert dialogue.user("yes?").assistant("So").found()[3] == NOTHING_NOTED


# A, B


def test_case_a4_text_that_hides_a_special_token_matches_the_answer(dialogue):
    dialogue.user("greet").sampled("Hello world")
    assert dialogue.user("again").found() == (dialogue.ref, 2, None, NOTHING_NOTED)


def test_case_b2_a_call_that_could_not_be_parsed_matches_as_the_text_it_was_given_as(dialogue):
    raw = '<tool_call>{"name":"grep","arguments":{"q": }}</tool_call>'
    dialogue.user("find").sampled(raw, notes=(Note(NoteCode.TOOL_JSON_INVALID),))
    assert dialogue.user("write JSON").found() == (dialogue.ref, 2, None, ["normalised:call_as_text"])


def test_case_b3_whitespace_that_a_parser_trimmed_is_forgiven_and_noted(dialogue):
    dialogue.user("plan").sampled("\n\n OK \n", reasoning="plan \n")
    dialogue.edit(1, text="OK", reasoning="plan").user("go")
    held = dialogue.match()
    assert (held.parent.ref, held.departure) == (dialogue.ref, None)
    assert held.notes == (Note(NoteCode.MATCH_WHITESPACE, "message 1"),)


# C


@pytest.mark.parametrize("parts", [(), (Text(""),), (Text(""), Text("")), (Text(" \n"),)])
def test_case_c1_no_text_in_any_spelling_is_one_answer(dialogue, parts):
    dialogue.user("list").sampled("", ("ls", "{}"))
    dialogue.edit(1, parts=parts).tool("a.py")
    parent, covered, departure, _ = dialogue.found()
    assert (parent, covered, departure) == (dialogue.ref, 2, None)


@pytest.mark.parametrize(("held", "sent"), [("{}", ""), ("", "{}"), ("null", "{}"), ("{}", " { } ")])
def test_case_c1_no_arguments_in_any_spelling_are_one(dialogue, held, sent):
    dialogue.user("list").sampled("", ("ls", held))
    dialogue.edit(1, calls=(ToolCall("renamed", "ls", sent),)).tool("a.py", "renamed")
    assert dialogue.found() == (dialogue.ref, 2, None, NOTHING_NOTED)


@pytest.mark.parametrize(
    ("reasoning", "text", "noted"),
    [
        ("R", "A", NOTHING_NOTED),
        ("", "A", NOTHING_NOTED),
        ("R\n", "A", ["normalised:parser_trim"]),
        ("", "<think>R</think>A", ["normalised:reasoning_in_content"]),
        ("R", "<think>\nR\n</think>\n\nA", ["normalised:reasoning_in_content"]),
    ],
)
def test_case_c2_thinking_that_is_absent_or_elsewhere_is_the_same_answer(dialogue, reasoning, text, noted):
    dialogue.user("q").sampled("A", reasoning="R")
    dialogue.edit(1, text=text, reasoning=reasoning).user("q2")
    assert dialogue.found() == (dialogue.ref, 2, None, noted)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("copied", ["both", ""])
def test_case_c3_one_answer_that_came_back_as_several_messages_is_one(dialogue, order, copied):
    dialogue.user("both?").sampled("both", ("f", '{"a": 1}'), ("f", '{"a": 2}'), reasoning="R")
    answer = dialogue.messages.pop()
    for turn, at in enumerate(order):
        call = answer.calls[at]
        dialogue.assistant("both" if turn == 0 else copied, reasoning="R", calls=(call,)).tool(f"r{at}", call.call_id)
    found = dialogue.match()
    assert (found.parent.ref, found.parent.message, found.departure) == (dialogue.ref, answer, None)
    assert [message.text for message in found.new_M] == [f"r{at}" for at in order]
    assert found.covered_M + len(found.new_M) == 5
    assert [note.code for note in found.notes] == [NoteCode.SPLIT_PARALLEL_CALLS]
    dialogue.sampled("done").user("thanks")
    assert dialogue.found() == (dialogue.ref, 6, None, ["normalised:split_parallel_calls"])


def test_case_c3_equal_calls_without_ids_are_put_together_by_order(dialogue):
    dialogue.user("twice").sampled("", ("f", "{}"), ("f", "{}"))
    dialogue.messages.pop()
    for at in range(2):
        dialogue.assistant("", calls=(ToolCall("", "f", "{}"),)).tool(f"r{at}", "")
    found = dialogue.match()
    assert (found.parent.ref, found.departure) == (dialogue.ref, None)
    assert [(message.text, message.call_id) for message in found.new_M] == [("r0", "c1-0"), ("r1", "c1-1")]


def test_case_c3_a_sibling_that_equals_the_first_part_is_not_taken_for_it(dialogue):
    started = dialogue.user("both?").start()
    two = Message(Role.ASSISTANT, calls=(ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}")))
    one = Message(Role.ASSISTANT, calls=(ToolCall("c", "f", "{}"),))
    dialogue.commit(started, two, one)
    dialogue.assistant("", calls=two.calls[:1]).tool("r0", "a").assistant("", calls=two.calls[1:]).tool("r1", "b")
    assert dialogue.match().parent.message == two


def test_case_c6_sub_agents_find_their_own_parents_in_any_order(new_dialogue):
    scripts = {
        "main": [("user", "u1"), ("sampled", "A1"), ("user", "t1"), ("sampled", "A2")],
        "sub-a": [("user", "x"), ("sampled", "X1"), ("user", "t2"), ("sampled", "X2")],
        "sub-b": [("user", "y"), ("sampled", "Y1")],
    }
    turns = [name for name, script in scripts.items() for _ in script]
    for seed in range(100):
        order = turns[:]
        random.Random(seed).shuffle(order)
        main = new_dialogue.fresh()
        clients = {name: main.other() for name in scripts}
        left = {name: iter(script) for name, script in scripts.items()}
        for name in scripts:
            clients[name].head_name = name[:3]
        for name in order:
            step, text = next(left[name])
            getattr(clients[name], step)(text)
        paths = [[n.message.text for n in node.path()] for node in main.forest.nodes if not node.children]
        assert sorted(paths) == [["A1", "A2"], ["X1", "X2"], ["Y1"]]
        forks = [s.started for s in main.forest.calls.values() if isinstance(s.started.history, Forked)]
        assert forks == []


def test_case_c7_ids_that_are_always_the_same_do_not_join_turns(dialogue):
    dialogue.user("go")
    for turn in range(4):
        dialogue.sampled("", ("terminal", "{}"))
        dialogue.edit(-1, calls=(ToolCall("call_0", "terminal", "{}"),))
        dialogue.tool(f"r{turn}", "call_0")
        noted = ["tool_id_duplicate"] if turn else NOTHING_NOTED
        assert dialogue.found() == (dialogue.ref, 2 + 2 * turn, None, noted)
    assert len(dialogue.forest.nodes) == 4


def test_case_c7_results_under_equal_ids_pair_by_position(dialogue):
    dialogue.user("go").sampled("", ("terminal", "{}"), ("terminal", "{}"))
    dialogue.edit(-1, calls=(ToolCall("call_0", "terminal", "{}"),) * 2).tool("r0", "call_0").tool("r1", "call_0")
    found = dialogue.match()
    noted = (Note(NoteCode.TOOL_ID_DUPLICATE, "message 1"),)
    assert (found.parent.ref, found.departure, found.notes) == (dialogue.ref, None, noted)
    assert [(message.text, message.call_id) for message in found.new_M] == [("r0", "c1-0"), ("r1", "c1-1")]
    dialogue.sampled("done").user("thanks")
    assert dialogue.found() == (dialogue.ref, 5, None, ["tool_id_duplicate"])


def test_case_d4_nothing_is_built_on_an_answer_without_ids(dialogue):
    started = dialogue.user("go").start()
    empty = Message(Role.ASSISTANT)
    dialogue.commit(started, empty, ids_S=IdRun(), logprobs_S=LogprobRun()).add(empty).user("and now?")
    parent, covered_M, departure, noted = dialogue.found()
    assert (parent, covered_M, departure, noted) == (
        None,
        0,
        Forked(ForkReason.NODE_INCOMPLETE, 1),
        ["rerendered_history"],
    )


# F, H, J


@pytest.mark.parametrize("call_id", ["c1-0", "renamed", ""])
def test_case_j6_a_default_that_the_client_added_is_forgiven(dialogue, call_id):
    dialogue.tools = (EDIT_TOOL,)
    dialogue.user("edit").sampled("", ("Edit", EDIT))
    added = '{"replace_all":false,"file_path":"a.py","old_string":"x","new_string":"y"}'
    dialogue.edit(1, calls=(ToolCall(call_id, "Edit", added),)).tool("done", call_id)
    assert dialogue.found() == (dialogue.ref, 2, None, ["normalised:arguments_added"])
    dialogue.sampled("ok").user("thanks")
    assert dialogue.found() == (dialogue.ref, 4, None, ["normalised:arguments_added"])


@pytest.mark.parametrize(
    ("call_id", "key", "is_forgiven"),
    [
        ("c1-0", '"replace_all":true', False),
        ("", '"replace_all":true', False),
        ("c1-0", '"mode":"fast"', True),
        ("c1-0", '"unknown":1', True),
        ("", '"mode":"fast"', False),
        ("", '"unknown":1', False),
    ],
)
def test_case_j6_other_added_keys_need_the_handed_out_id_and_no_stated_default(dialogue, call_id, key, is_forgiven):
    dialogue.tools = (EDIT_TOOL,)
    dialogue.user("edit").sampled("", ("Edit", EDIT))
    dialogue.edit(1, calls=(ToolCall(call_id, "Edit", f"{{{key},{EDIT[1:]}"),)).tool("done", call_id)
    _, _, departure, notes = dialogue.found()
    if is_forgiven:
        assert (departure, notes) == (None, ["normalised:arguments_added"])
    else:
        assert (departure.reason, departure.message_index) == (ForkReason.ASSISTANT_EDITED, 1)


@pytest.mark.parametrize("sent", ['{"b": [1.0, "é"], "a": 2e0}', '{"a":2,"b":[1,"\\u00e9"]}', '{"a":2.0,"b":[1,"é"]}'])
def test_arguments_are_compared_as_values(dialogue, sent):
    dialogue.user("go").sampled("", ("f", '{"a":2,"b":[1,"é"]}'))
    dialogue.edit(1, calls=(ToolCall("other", "f", sent),)).tool("done", "other")
    assert dialogue.found() == (dialogue.ref, 2, None, NOTHING_NOTED)


@pytest.mark.parametrize("sent", ['{"a":true}', '{"a":"1"}', '{"a":2}', "{}", '{"a":1,', '{"b":1}'])
def test_other_values_are_an_edit(dialogue, sent):
    dialogue.user("go").sampled("", ("f", '{"a":1}'))
    dialogue.edit(1, calls=(ToolCall("c1-0", "f", sent),)).tool("done")
    assert dialogue.found()[2].reason is ForkReason.ASSISTANT_EDITED


# several equal answers


def test_of_equal_answers_the_latest_is_taken_and_the_doubt_recorded(dialogue):
    dialogue.user("2+2?").sampled("4").back_to(1).sampled("4")
    found = dialogue.user("why?").match()
    assert found.parent.ref == dialogue.ref
    assert found.notes == (Note(NoteCode.MATCH_AMBIGUOUS, "2 equal answers, took c3: the latest that was delivered"),)


def test_of_equal_answers_the_one_whose_ids_came_back_is_taken(dialogue):
    dialogue.user("list").sampled("", ("ls", "{}"))
    first, ids = dialogue.ref, dialogue.messages[1].calls
    dialogue.back_to(1).sampled("", ("ls", "{}")).edit(1, calls=ids).tool("a.py")
    assert dialogue.found() == (first, 2, None, ["match_ambiguous"])


def test_of_equal_answers_one_that_never_arrived_is_taken_last(dialogue):
    dialogue.user("2+2?").sampled("4")
    first = dialogue.ref
    dialogue.back_to(1).sampled("4").undelivered()
    assert dialogue.user("why?").found()[0] == first


def test_of_answers_with_equal_text_the_one_with_the_same_thinking_is_taken(dialogue):
    dialogue.user("2+2?").sampled("4", reasoning="two and two")
    first = dialogue.ref
    dialogue.back_to(1).sampled("4", reasoning="counting").edit(1, reasoning="two and two")
    assert dialogue.user("why?").found() == (first, 2, None, NOTHING_NOTED)


def test_choices_of_one_call_are_siblings(dialogue):
    started = dialogue.user("pick").start()
    dialogue.commit(started, *(Message(Role.ASSISTANT, (Text(text),)) for text in "ab"))
    for choice, text in enumerate("ab"):
        found = dialogue.other(dialogue.messages[0]).assistant(text).user("on").match()
        assert (found.parent.ref.choice, found.departure) == (choice, None)


# answers that cannot be built on


def test_a_history_that_was_rendered_again_is_built_on(dialogue):
    dialogue.user("u1").sampled("A1").user("u2")
    started = dialogue.start(rerender=True)
    answer = Message(Role.ASSISTANT, (Text("A2"),))
    dialogue.commit(started, answer).add(answer).user("u3")
    assert dialogue.found() == (dialogue.ref, 4, None, NOTHING_NOTED)
    dialogue.edit(2, text="v2")
    assert dialogue.found()[2] == Forked(ForkReason.MESSAGE_EDITED, 2, 0, "u2", "v2")


def test_notes_on_a_long_history_stay_short(dialogue):
    for turn in range(6):
        dialogue.user(f"u{turn}").sampled(f"A{turn} ")
    for at in range(1, 12, 2):
        dialogue.edit(at, text=dialogue.messages[at].text.strip())
    assert dialogue.user("on").match().notes == (Note(NoteCode.MATCH_WHITESPACE, "message 1, 3, 5 and 3 more"),)


def test_parts_of_a_text_are_joined_for_comparison(dialogue):
    dialogue.user("u").sampled("one two")
    dialogue.messages[1] = with_text(dialogue.messages[1], "one ", "two")
    assert dialogue.user("on").found() == (dialogue.ref, 2, None, NOTHING_NOTED)


def test_every_permutation_of_results_is_matched_in_the_order_sent(new_dialogue):
    for order in itertools.permutations(range(3)):
        dialogue = new_dialogue.fresh().user("go").sampled("", ("f", "{}"), ("g", "{}"), ("h", "{}"))
        for at in order:
            dialogue.tool(f"r{at}", f"c1-{at}")
        found = dialogue.match()
        assert (found.parent.ref, [message.text for message in found.new_M]) == (
            dialogue.ref,
            [f"r{at}" for at in order],
        )
        dialogue.sampled("done").user("on")
        assert dialogue.found() == (dialogue.ref, 6, None, NOTHING_NOTED)
