"""Which broken-off answer a request goes on from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from turnstile.conversation import Ending, Message, Role, Text, ToolCall
from turnstile.errors import StoreError
from turnstile.generation import FinishedItem, Forked, NodeRef
from turnstile.history.forest import Forest
from turnstile.history.resuming import Resumed, resumable
from turnstile.journal import AnswerResumed, CallFailed, PartialChoice
from turnstile.reasons import FailReason, ForkReason, NoteCode
from turnstile.tokens import IdRun, LogprobRun

AT = datetime(2026, 12, 1, tzinfo=UTC)
THOUGHT = Message(Role.ASSISTANT, reasoning="Hm.")
SAID = Message(Role.ASSISTANT, (Text("Look."),))
CALLED = ToolCall("k", "ls", '{"p":1}')
WHOLE = Message(Role.ASSISTANT, (Text("Look."),), reasoning="Hm.", calls=(CALLED,))
ITEMS = (FinishedItem(THOUGHT, 2), FinishedItem(SAID, 3), FinishedItem(Message(Role.ASSISTANT, calls=(CALLED,)), 5))
RESULT = Message(Role.TOOL, (Text("b"),), call_id="k")


def broken(dialogue: Any, items: tuple[FinishedItem, ...] = ITEMS, ids: range = range(900, 906)) -> NodeRef:
    """The request as it stands is answered, and the answer breaks off."""
    started = dialogue.start()
    known = PartialChoice(logprobs_S=LogprobRun.of([-0.5] * len(ids)), items=items)
    dialogue.keep(
        CallFailed(
            "r", started.call_id, AT, FailReason.ENGINE_UNREACHABLE, "cut", partial_S=IdRun.of(ids), partials=(known,)
        )
    )
    return NodeRef(started.call_id)


def found(dialogue: Any) -> Resumed | None:
    return resumable(dialogue.forest, dialogue.head, dialogue.call)


def resume(dialogue: Any, taken: Resumed) -> None:
    dialogue.keep(AnswerResumed("r", taken.ref.call_id, taken.ref.choice, taken.length_S, AT))


@pytest.mark.parametrize(
    ("message", "length_S"),
    [
        (WHOLE, 5),
        (msgspec.structs.replace(WHOLE, reasoning=""), 5),
        (msgspec.structs.replace(WHOLE, calls=(ToolCall("other", "ls", '{ "p": 1.0 }'),)), 5),
        (Message(Role.ASSISTANT, (Text("Look. "),), reasoning="Hm."), 3),
        (THOUGHT, 2),
    ],
    ids=["all", "without thinking", "written anew", "text", "thinking"],
)
def test_the_items_that_come_back_say_how_far_the_answer_is_taken_up(dialogue, message, length_S):
    ref = broken(dialogue.user("Hi"))
    assert found(dialogue.add(message, RESULT)) == Resumed(ref, length_S)


@pytest.mark.parametrize(
    "message",
    [
        Message(Role.ASSISTANT, (Text("Loo"),), reasoning="Hm."),
        Message(Role.ASSISTANT, (Text("Look."),), reasoning="Other."),
        Message(Role.ASSISTANT),
        msgspec.structs.replace(WHOLE, calls=(CALLED, CALLED)),
    ],
    ids=["cut text", "other thinking", "nothing", "one call more"],
)
def test_another_message_takes_up_nothing(dialogue, message):
    broken(dialogue.user("Hi"))
    assert found(dialogue.add(message)) is None


def test_a_plain_retry_takes_up_nothing(dialogue):
    broken(dialogue.user("Hi"))
    assert found(dialogue) is None
    assert dialogue.match().parent is None


def test_items_behind_another_prompt_take_up_nothing(dialogue):
    broken(dialogue.user("Hi"))
    assert found(dialogue.other().user("Hello").add(WHOLE)) is None


def test_what_is_taken_up_is_a_parent_like_any_other_and_says_so(dialogue):
    ref = broken(dialogue.user("Hi"))
    resume(dialogue.add(WHOLE, RESULT), Resumed(ref, 5))
    match = dialogue.match()
    assert match.parent is not None
    assert (match.parent.ref, match.parent.held_T.tolist()[-5:]) == (ref, list(range(900, 905)))
    assert (match.parent.message, match.new_M, match.departure) == (WHOLE, (RESULT,), None)
    assert [note.code for note in match.notes] == [NoteCode.CONTINUED_FROM_ABORTED]
    assert found(dialogue) is None


def test_an_answer_that_breaks_off_behind_a_taken_up_one_is_taken_up_next(dialogue):
    first = broken(dialogue.user("Hi"))
    resume(dialogue.add(WHOLE, RESULT), Resumed(first, 5))
    second = broken(dialogue, (FinishedItem(SAID, 1),), range(950, 953))
    assert found(dialogue.add(SAID).user("more")) == Resumed(second, 1)
    dialogue.records.append(record := AnswerResumed("r", second.call_id, 0, 1, AT))
    dialogue.forest.apply(record)
    assert dialogue.match().parent.ref == second
    assert Forest.of(dialogue.records) == dialogue.forest


def test_of_two_equal_answers_the_latest_is_taken_up(dialogue):
    broken(dialogue.user("Hi"))
    latest = broken(dialogue)
    assert found(dialogue.add(WHOLE)) == Resumed(latest, 5)


def test_the_first_taking_up_counts_and_other_items_of_it_are_an_edit(dialogue):
    ref = broken(dialogue.user("Hi"))
    for length_S in (3, 5):
        resume(dialogue, Resumed(ref, length_S))
    assert len(dialogue.forest.node(ref).choice.ids_S) == 3
    other = dialogue.add(WHOLE, RESULT)
    assert found(other) is None
    assert isinstance(other.match().departure, Forked)
    assert other.match().departure.reason is ForkReason.ASSISTANT_EDITED


def test_an_answer_that_went_on_with_the_clients_own_words_is_not_taken_up(dialogue):
    dialogue.user("Hi").assistant("Well, ")
    dialogue.ending = Ending.CONTINUE
    broken(dialogue)
    dialogue.ending = Ending.ANSWER
    assert not dialogue.forest.has_broken_off


@pytest.mark.parametrize(("call_id", "length_S"), [("c9", 5), ("", 5), (None, 4), (None, 6)])
def test_a_record_that_takes_up_what_is_not_there_is_refused(dialogue, call_id, length_S):
    ref = broken(dialogue.user("Hi"))
    record = AnswerResumed("r", ref.call_id if call_id is None else call_id, 0, length_S, AT)
    with pytest.raises(StoreError):
        dialogue.forest.apply(record)
    assert Forest.of(dialogue.records) == dialogue.forest
