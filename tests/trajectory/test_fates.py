from __future__ import annotations

from turnstile.conversation import CallKind
from turnstile.generation import Forked, NodeRef
from turnstile.reasons import DiscardReason, ForkReason, IncompleteReason
from turnstile.trajectory.fates import Fates

ROOT = [1, 10, 11, 20]


def leaves(journal):
    return [str(leaf.ref) for leaf in Fates(journal.forest()).leaves]


def test_a_completion_that_none_keeps_whole_is_a_leaf(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    journal.turn("c", [3, 51, 20], [70, 2], first)
    assert leaves(journal) == ["b", "c"]


def test_a_completion_whose_end_every_child_cuts_off_is_a_leaf_too(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [9, 50, 20], [60, 2], first, cut=1, history=Forked(ForkReason.STOP_MISMATCH))
    assert leaves(journal) == ["a", "b"]


def test_an_undelivered_answer_that_was_put_back_was_consumed(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.undelivered("a")
    assert Fates(journal.forest()).discarded == {first: DiscardReason.CLIENT_GONE}
    journal.turn("b", [11, 20], [60, 2], history=Forked(ForkReason.HISTORY_REWRITTEN), replayed=[first])
    assert Fates(journal.forest()).discarded == {}
    assert leaves(journal) == ["a", "b"]


def test_a_choice_that_was_put_back_is_the_one_that_the_client_used(journal):
    journal.start("a", ROOT)
    refs = journal.commit("a", journal.choice("a", [30, 2]), journal.choice("a", [31, 2], number=1))
    journal.turn("b", [11, 20], [60, 2], history=Forked(ForkReason.HISTORY_REWRITTEN), replayed=refs[1:])
    assert Fates(journal.forest()).discarded == {refs[0]: DiscardReason.UNSELECTED_CHOICE}


def test_what_was_discarded_extends_nothing(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    journal.undelivered("b")
    assert leaves(journal) == ["a"]


def test_a_whole_completion_before_an_incomplete_one_is_a_leaf_too(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60], first, incomplete=(IncompleteReason.STOP_UNKNOWN,))
    fates = Fates(journal.forest())
    assert [str(leaf.ref) for leaf in fates.leaves] == ["a", "b"]
    assert fates.owners == {NodeRef("a"): 0, NodeRef("b"): 1}


def test_sequences_stand_in_the_order_in_which_their_last_calls_started(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.start("b", [3, 50, 20], first)
    journal.turn("c", [3, 51, 20], [70, 2], first)
    journal.commit("b", journal.choice("b", [60, 2]))
    assert leaves(journal) == ["b", "c"]


def test_the_word_for_a_discard_is_the_journals(journal):
    journal.turn("a", ROOT, [30, 2])
    journal.undelivered("a")
    assert Fates(journal.forest()).discarded == {NodeRef("a"): DiscardReason.CLIENT_GONE}


def test_an_auxiliary_answer_never_costs_the_turns_before_it_their_sequence(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.start("b", [3, 50, 20], first, kind=CallKind.AUXILIARY, purpose="compaction")
    journal.commit("b", journal.choice("b", [60, 2]))
    fates = Fates(journal.forest())
    assert [str(leaf.ref) for leaf in fates.leaves] == ["a", "b"]
    assert fates.owners == {NodeRef("a"): 0, NodeRef("b"): 1}


def test_turns_belong_to_a_sequence_that_goes_on_with_turns(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.start("b", [3, 50, 20], first, kind=CallKind.AUXILIARY)
    journal.commit("b", journal.choice("b", [60, 2]))
    journal.turn("c", [3, 51, 20], [70, 2], first)
    fates = Fates(journal.forest())
    assert [str(leaf.ref) for leaf in fates.leaves] == ["b", "c"]
    assert fates.owners == {NodeRef("a"): 1, NodeRef("b"): 0, NodeRef("c"): 1}


def test_an_auxiliary_call_that_goes_on_is_one_sequence(journal):
    journal.start("a", ROOT, kind=CallKind.AUXILIARY)
    (first,) = journal.commit("a", journal.choice("a", [30, 2]))
    journal.start("b", [3, 50, 20], first, kind=CallKind.AUXILIARY)
    journal.commit("b", journal.choice("b", [60, 2]))
    assert leaves(journal) == ["b"]
