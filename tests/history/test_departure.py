"""Why a request is no plain continuation: reason, place and both texts."""

from __future__ import annotations

import pytest

from turnstile.conversation import Ending, Image, Message, Role, Text
from turnstile.generation import Forked, Root
from turnstile.reasons import ForkReason, IncompleteReason, RootReason
from turnstile.tokens import IdRun, LogprobRun

NOTHING_NOTED: list[str] = []


def test_the_first_call_of_a_rollout_is_a_root(dialogue):
    assert dialogue.user("2+2?").found() == (None, 0, Root(RootReason.FIRST_CALL), NOTHING_NOTED)


def test_another_head_is_a_new_root(dialogue):
    dialogue.user("2+2?").sampled("4").user("3+3?")
    dialogue.head_name = "other tools"
    assert dialogue.found() == (None, 0, Root(RootReason.HEAD_CHANGED), ["rerendered_history"])


def test_a_new_sample_of_a_held_prompt_is_no_departure(dialogue):
    dialogue.user("2+2?").sampled("4")
    parent = dialogue.ref
    dialogue.user("why?").sampled("because")
    assert dialogue.back_to(3).found() == (parent, 2, None, NOTHING_NOTED)


def test_a_new_sample_of_the_first_prompt_came_about_as_the_first(dialogue):
    dialogue.user("2+2?").sampled("4")
    assert dialogue.back_to(1).found() == (None, 0, Root(RootReason.FIRST_CALL), NOTHING_NOTED)


def test_a_call_that_failed_holds_nothing(dialogue):
    dialogue.user("2+2?").fail()
    assert dialogue.found() == (None, 0, Root(RootReason.FIRST_CALL), NOTHING_NOTED)


def test_case_b3_whitespace_within_the_text_is_an_edit(dialogue):
    dialogue.user("plan").sampled("OK")
    dialogue.edit(1, text="O K").user("go")
    assert dialogue.found() == (None, 0, Forked(ForkReason.ASSISTANT_EDITED, 1, 1, "OK", "O K"), ["injected_assistant"])


def test_case_c2_changed_thinking_is_an_edit(dialogue):
    dialogue.user("q").sampled("A", reasoning="R")
    dialogue.edit(1, reasoning="R changed").user("q2")
    edited = Forked(ForkReason.ASSISTANT_EDITED, 1, 1, "R", "R changed")
    assert dialogue.found()[:3] == (None, 0, edited)


def test_case_c3_half_of_a_split_answer_is_an_edit(dialogue):
    dialogue.user("both?").sampled("", ("f", '{"a":1}'), ("f", '{"a":2}'))
    answer = dialogue.messages.pop()
    dialogue.assistant("", calls=answer.calls[:1]).tool("r0")
    assert dialogue.found()[2].reason is ForkReason.ASSISTANT_EDITED


def test_case_c4_an_answer_that_was_left_out_is_a_fork(dialogue):
    dialogue.system("s").user("u").sampled("A")
    dialogue.back_to(2).user("use the format")
    omitted = Forked(ForkReason.ASSISTANT_TURN_OMITTED, 2, None, "A", "use the format")
    assert dialogue.found() == (None, 0, omitted, NOTHING_NOTED)
    dialogue.sampled("B").user("u3")
    assert dialogue.found() == (dialogue.ref, 4, None, NOTHING_NOTED)


def test_case_c4_an_answer_may_be_left_out_twice(dialogue):
    dialogue.system("s").user("u").sampled("A").back_to(2).user("use the format").sampled("B").back_to(2)
    assert dialogue.user("use it please").found()[2].reason is ForkReason.ASSISTANT_TURN_OMITTED


def test_case_c4_an_answer_that_was_left_out_before_a_later_one_came_back(dialogue):
    dialogue.user("u").sampled("A", ("f", "{}")).tool("failed").sampled("B").user("u2").sampled("C")
    del dialogue.messages[1:3]
    omitted = Forked(ForkReason.ASSISTANT_TURN_OMITTED, 1, 0, "A", "B")
    assert dialogue.user("u3").found() == (None, 0, omitted, [])


@pytest.mark.parametrize(
    ("was", "now", "offset"),
    [("[09:00] do X", "do X", 0), ("...</system-reminder>", "...</system-reminder>\n", 21)],
)
def test_case_c5_old_user_text_that_changed_forks_and_says_where(dialogue, was, now, offset):
    dialogue.user(was).sampled("A")
    dialogue.edit(0, text=now).user("next")
    edited = Forked(ForkReason.MESSAGE_EDITED, 0, offset, was, now)
    assert dialogue.found() == (None, 0, edited, [])


def test_case_c5_snippets_show_the_place_in_long_texts(dialogue):
    dialogue.user("x" * 500 + "9" + "y" * 500).sampled("A")
    fork = dialogue.edit(0, text="x" * 500 + "8" + "y" * 500).user("next").found()[2]
    assert (fork.char_offset, fork.was, fork.now) == (500, "x" * 20 + "9" + "y" * 39, "x" * 20 + "8" + "y" * 39)


def test_case_c6_an_opening_of_its_own_under_a_known_head_is_a_new_conversation(dialogue):
    dialogue.system("s").user("x").sampled("X1")
    other = dialogue.other(dialogue.messages[0]).user("y")
    assert other.found() == (None, 0, Root(RootReason.NEW_CONVERSATION), NOTHING_NOTED)


def test_results_that_change_places_are_an_edit(dialogue):
    dialogue.user("go").sampled("", ("f", "{}"), ("g", "{}"))
    parent = dialogue.ref
    dialogue.tool("same", "c1-0").tool("same", "c1-1").sampled("done").user("thanks")
    dialogue.edit(2, call_id="c1-1").edit(3, call_id="c1-0")
    edited = Forked(ForkReason.MESSAGE_EDITED, 2, None, "same", "same")
    assert dialogue.found()[:3] == (parent, 2, edited)


def test_a_tool_that_was_run_again_is_an_edited_message(dialogue):
    dialogue.user("2+2?").sampled("", ("add", '{"a":2,"b":2}'))
    parent = dialogue.ref
    dialogue.tool("4").sampled("It is 4.")
    dialogue.back_to(2).tool("error")
    assert dialogue.found() == (
        parent,
        2,
        Forked(ForkReason.MESSAGE_EDITED, 2, 0, "4", "error"),
        NOTHING_NOTED,
    )


def test_going_back_and_on_with_another_message_is_a_rewind(dialogue):
    dialogue.user("u1").sampled("A1")
    parent = dialogue.ref
    dialogue.user("u2").sampled("A2").back_to(2)
    rewound = Forked(ForkReason.REWOUND, 2, 0, "u2", "v2")
    assert dialogue.user("v2").found() == (parent, 2, rewound, NOTHING_NOTED)


def test_an_edit_in_the_middle_keeps_the_answers_before_it(dialogue):
    dialogue.user("u1").sampled("A1")
    parent = dialogue.ref
    dialogue.user("u2").sampled("A2").user("u3").sampled("A3").edit(2, text="v2")
    edited = Forked(ForkReason.MESSAGE_EDITED, 2, 0, "u2", "v2")
    assert dialogue.user("u4").found() == (parent, 2, edited, [])


def test_case_h2_a_history_that_was_replaced_by_a_summary_says_so(dialogue):
    dialogue.system("s").user("u0")
    for turn in range(1, 6):
        dialogue.sampled(f"A{turn}").user(f"u{turn}")
    before_summary = dialogue.copy().back_to(11)
    fifth = dialogue.ref
    dialogue.back_to(11).user("summarise").sampled("five turns went by")
    compacted = dialogue.other(dialogue.messages[0]).user("Summary: five turns went by")
    assert compacted.found()[2] == Forked(ForkReason.HISTORY_REWRITTEN, 1, 0, "u0", "Summary: five turns went by")
    compacted.sampled("A7").user("u7")
    assert compacted.found() == (compacted.ref, 3, None, NOTHING_NOTED)
    rewound = Forked(ForkReason.REWOUND, 11, 0, "summarise", "u6")
    assert before_summary.user("u6").found() == (fifth, 11, rewound, NOTHING_NOTED)


def test_case_h2_a_shortened_history_is_rewritten(dialogue):
    dialogue.system("s").user("u0")
    for turn in range(1, 5):
        dialogue.sampled(f"A{turn}").user(f"u{turn}")
    del dialogue.messages[2:6]
    assert dialogue.found()[2] == Forked(ForkReason.HISTORY_REWRITTEN, 2, 1, "A1", "A3")


def test_an_answer_without_trustworthy_ids_is_no_parent(dialogue):
    dialogue.user("15+27?").sampled("42", incomplete=(IncompleteReason.IDS_INCOMPLETE,)).user("sure?")
    fork = Forked(ForkReason.NODE_INCOMPLETE, message_index=1)
    assert dialogue.found() == (None, 0, fork, ["rerendered_history"])
    dialogue.sampled("yes").user("really?")
    assert dialogue.found() == (dialogue.ref, 4, None, NOTHING_NOTED)


def test_what_stands_before_an_untrusted_answer_is_kept(dialogue):
    dialogue.user("u1").sampled("A1")
    parent = dialogue.ref
    dialogue.user("u2").sampled("A2", incomplete=(IncompleteReason.IDS_INCOMPLETE,)).user("u3")
    fork = Forked(ForkReason.NODE_INCOMPLETE, message_index=3)
    assert dialogue.found() == (parent, 2, fork, ["rerendered_history"])


def test_an_assistant_message_inserted_into_the_past_is_a_rewritten_history(dialogue):
    dialogue.user("u1").sampled("A1").user("u2").sampled("A2").user("u3")
    dialogue.messages.insert(2, Message(Role.ASSISTANT, (Text("mine"),)))
    assert dialogue.found()[2] == Forked(ForkReason.HISTORY_REWRITTEN, 2, None, "u2", "mine")


def test_a_reminder_inserted_into_the_past_is_an_edited_message(dialogue):
    dialogue.user("u1").sampled("A1").user("u2").sampled("A2").user("u3")
    dialogue.messages.insert(2, Message(Role.SYSTEM, (Text("9000 tokens left"),)))
    assert dialogue.found()[2] == Forked(ForkReason.MESSAGE_EDITED, 2, None, "u2", "9000 tokens left")


def test_dropping_the_last_turns_and_asking_otherwise_is_a_rewind_not_an_omission(dialogue):
    dialogue.user("u1").sampled("A1").user("u2").sampled("A2").back_to(1).user("v")
    rewound = Forked(ForkReason.REWOUND, 1, None, "A1", "v")
    assert dialogue.found() == (None, 0, rewound, NOTHING_NOTED)


def test_a_summary_behind_a_kept_first_turn_is_a_rewritten_history(dialogue):
    dialogue.user("u1").sampled("A1").user("u2").sampled("A2").user("summarise").sampled("two turns went by")
    dialogue.back_to(2).user("So far: two turns went by")
    assert dialogue.found()[2].reason is ForkReason.HISTORY_REWRITTEN


def test_a_short_answer_that_stands_in_another_text_is_no_summary(dialogue):
    dialogue.system("s").user("x").sampled("Done.")
    assert dialogue.back_to(1).user("Say Done.").found()[2] == Root(RootReason.NEW_CONVERSATION)


def test_an_earlier_prompt_asked_again_without_its_last_messages_is_no_departure(dialogue):
    dialogue.user("u1").sampled("A1")
    parent = dialogue.ref
    dialogue.user("u2").user("u3").sampled("A3")
    assert dialogue.back_to(3).found() == (parent, 2, None, NOTHING_NOTED)


def test_an_answer_put_in_anothers_place_without_a_known_future_is_a_rewind(dialogue):
    dialogue.user("u1").sampled("A1").user("u2").sampled("A2")
    dialogue.back_to(2).assistant("mine").user("u3")
    assert dialogue.found()[2].reason is ForkReason.REWOUND


def test_the_second_sample_of_a_fork_without_a_parent_has_the_firsts_reason(dialogue):
    dialogue.system("s").user("u").sampled("A").back_to(2).user("use the format")
    first = dialogue.found()[2]
    dialogue.sampled("B")
    assert dialogue.back_to(3).found()[2] == first


def test_a_history_given_under_another_head_does_not_make_a_fork(dialogue):
    dialogue.user("u1").sampled("A1").user("u2")
    parent = dialogue.ref
    dialogue.head_name = "other"
    dialogue.sampled("A2").user("u3")
    dialogue.head_name = "main"
    assert dialogue.found() == (parent, 2, None, ["rerendered_history"])


SHOT = Image("a1" * 32, "image/png")
OTHER_SHOT = Image("b2" * 32, "image/png")


def test_case_i3_a_screenshot_that_was_blanked_is_changed_media(dialogue):
    dialogue.add(Message(Role.USER, (Text("look"), SHOT))).sampled("seen").user("go").sampled("gone")
    dialogue.edit(0, parts=(Text("look"), Text("[image omitted]"))).user("on")
    fork = Forked(ForkReason.MEDIA_CHANGED, 0, None, "image/png a1a1a1a1a1a1", "look[image omitted]")
    assert dialogue.found()[:3] == (None, 0, fork)


def test_case_i3_a_result_whose_screenshot_was_dropped_is_changed_media(dialogue):
    dialogue.user("look").sampled("", ("shot", "{}")).tool("").edit(2, parts=(SHOT,))
    dialogue.sampled("seen").user("go").sampled("gone")
    dialogue.edit(2, parts=(Text("[image omitted]"),)).user("on")
    assert dialogue.found()[2].reason is ForkReason.MEDIA_CHANGED


def test_another_image_under_the_same_text_is_changed_media(dialogue):
    dialogue.user("hi").sampled("hello").add(Message(Role.USER, (Text("look"), SHOT))).sampled("seen")
    dialogue.edit(2, parts=(Text("look"), OTHER_SHOT)).back_to(3)
    fork = Forked(ForkReason.MEDIA_CHANGED, 2, None, "image/png a1a1a1a1a1a1", "image/png b2b2b2b2b2b2")
    assert dialogue.found()[1:3] == (2, fork)


def test_an_opening_with_another_image_is_a_new_conversation(dialogue):
    dialogue.add(Message(Role.USER, (Text("look"), SHOT))).sampled("seen")
    other = dialogue.other(Message(Role.USER, (Text("look"), OTHER_SHOT)))
    assert other.found()[2] == Root(RootReason.NEW_CONVERSATION)


def test_a_summary_in_place_of_an_image_is_a_rewritten_history(dialogue):
    dialogue.user("hi").sampled("hello").add(Message(Role.USER, (Text("look"), SHOT))).sampled("a long enough answer")
    dialogue.edit(2, parts=(Text("Summary: it said a long enough answer"),)).back_to(3)
    assert dialogue.found()[2].reason is ForkReason.HISTORY_REWRITTEN


def test_the_same_image_under_another_declared_kind_is_the_same_message(dialogue):
    dialogue.add(Message(Role.USER, (Text("look"), SHOT))).sampled("seen")
    parent = dialogue.ref
    dialogue.edit(0, parts=(Text("lo"), Text("ok"), Image(SHOT.sha256, "image/jpeg"))).user("on")
    assert dialogue.found()[:3] == (parent, 2, None)


def test_an_answer_that_was_continued_by_nothing_goes_on_plainly(dialogue):
    dialogue.user("count").sampled("one")
    first = dialogue.ref
    dialogue.ending = Ending.CONTINUE
    dialogue.sampled(ids_S=IdRun(), logprobs_S=LogprobRun())
    dialogue.ending = Ending.ANSWER
    assert dialogue.back_to(2).user("on").found() == (first, 2, None, NOTHING_NOTED)
