"""What of a broken-off answer a client may go on from."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from turnstile.conversation import Message, Role, Text, ToolCall
from turnstile.generation import Finish, FinishedItem, LogprobsMode, NodeRef
from turnstile.history.broken_off import BrokenOff, Taken, broken_off
from turnstile.journal import CallFailed, PartialChoice
from turnstile.reasons import FailReason
from turnstile.tokens import IdRun, LogprobRun

AT = datetime(2026, 12, 1, tzinfo=UTC)
THOUGHT = Message(Role.ASSISTANT, reasoning="Hm.")
SAID = Message(Role.ASSISTANT, (Text("Look."),))
CALLED = Message(Role.ASSISTANT, calls=(ToolCall("k", "ls", "{}"),))
ITEMS = (FinishedItem(THOUGHT, 2), FinishedItem(SAID), FinishedItem(CALLED, 5))
PARTIAL = PartialChoice(
    logprobs_S=LogprobRun.of([-0.5, None, -1.0, -1.5, -2.0, -2.5]),
    logprobs_mode=LogprobsMode.RAW,
    logprobs_temperature=1.0,
    items=ITEMS,
    policy_min=3,
    policy_max=4,
    placeholders_S=(1, 5),
)
BROKEN = BrokenOff(NodeRef("c0", 1), 7, IdRun.of(range(6)), PARTIAL)


def test_a_client_may_bring_back_all_finished_items_or_the_first_ones():
    whole = Message(Role.ASSISTANT, (Text("Look."),), reasoning="Hm.", calls=CALLED.calls)
    assert list(BROKEN.beginnings()) == [Taken(whole, 5), Taken(THOUGHT, 2)]


def test_a_beginning_is_a_completion_of_its_ids_with_what_is_known_of_them():
    choice = BROKEN.choice(2)
    assert (choice.choice, choice.ids_S, choice.message) == (1, IdRun.of([0, 1]), THOUGHT)
    assert (choice.logprobs_S, choice.placeholders_S) == (LogprobRun.of([-0.5, None]), (1,))
    assert (choice.finish, choice.usage.prompt_tokens, choice.usage.completion_tokens) == (Finish.ABORT, 7, 2)
    assert (choice.policy_min, choice.policy_max, choice.logprobs_mode) == (3, 4, LogprobsMode.RAW)
    assert [note.detail for note in choice.notes] == ["2 of 6 ids"]


def test_without_numbers_the_completion_has_none():
    bare = msgspec.structs.replace(BROKEN, partial=PartialChoice(items=ITEMS))
    assert bare.choice(5).logprobs_S is None


def test_nothing_is_cut_inside_an_item():
    with pytest.raises(ValueError, match="no item of c0"):
        BROKEN.choice(4)


def test_choices_without_an_end_of_an_item_and_records_without_items_cannot_be_gone_on_from(dialogue):
    started = dialogue.user("Hi").start()
    failed = CallFailed("r", started.call_id, AT, FailReason.CLIENT_GONE, "gone", partial_S=IdRun.of([1]))
    assert broken_off(started, failed) == ()
    known = (PartialChoice(items=(FinishedItem(SAID),)), PARTIAL)
    failed = msgspec.structs.replace(failed, other_partials_S=(IdRun.of(range(6)),), partials=known)
    assert broken_off(started, failed) == (BrokenOff(NodeRef(started.call_id, 1), 3, IdRun.of(range(6)), PARTIAL),)
