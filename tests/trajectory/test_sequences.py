from __future__ import annotations

import pytest

from turnstile.conversation import CallKind
from turnstile.generation import Finish, Forked
from turnstile.reasons import ForkReason
from turnstile.tokens import SegmentKind
from turnstile.trajectory.fates import Fates
from turnstile.trajectory.sequences import path_pieces, segments_of

ROOT = [1, 10, 11, 20]


def pieces(journal, name):
    leaf = next(node for node in journal.forest().nodes if node.ref.call_id == name)
    return [(piece.length, piece.kind.value, piece.node and str(piece.node.ref)) for piece in path_pieces(leaf)]


def test_a_path_is_what_each_call_added_and_sampled(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first)
    assert pieces(journal, "b") == [
        (2, "prompt", None),
        (2, "scaffold", None),
        (2, "sampled", "a"),
        (1, "observation", None),
        (2, "scaffold", None),
        (2, "sampled", "b"),
    ]


def test_a_child_may_cut_through_a_whole_answer_and_what_stood_before_it(journal):
    first = journal.turn("a", ROOT, [30])
    journal.turn("b", [60], [61, 2], first, cut=3, history=Forked(ForkReason.CONTINUED))
    assert pieces(journal, "b") == [(3, "prompt", None), (2, "sampled", "b")]


def test_an_answer_that_goes_on_is_two_completions_side_by_side(journal):
    first = journal.turn("a", ROOT, [30, 31])
    journal.turn("b", [], [32, 2], first, history=Forked(ForkReason.CONTINUED))
    assert pieces(journal, "b")[2:] == [(2, "sampled", "a"), (2, "sampled", "b")]


def test_an_answer_that_was_put_back_names_its_call_and_is_never_trained(journal):
    first = journal.turn("a", ROOT, [30, 31, 2])
    forked = Forked(ForkReason.HISTORY_REWRITTEN)
    second = journal.turn("b", [10, 11, 20], [60, 2], history=forked, replayed=[first])
    journal.turn("c", [12, 11, 20], [70, 2], history=forked, replayed=[first, second], lost=1)
    fates = Fates(journal.forest())
    found = [
        [(part.kind, part.end - part.start, part.call) for part in segments_of(path_pieces(leaf), at, fates)]
        for at, leaf in enumerate(fates.leaves)
    ]
    assert found[1:] == [
        [("scaffold", 1, None), ("replayed", 3, 0), ("prompt", 1, None), ("scaffold", 2, None), ("sampled", 2, 1)],
        [
            *[("scaffold", 1, None), ("replayed", 2, 0), ("scaffold", 1, None), ("replayed", 1, 1)],
            *[("prompt", 1, None), ("scaffold", 2, None), ("sampled", 2, 2)],
        ],
    ]
    assert not any(
        part.trainable or part.mask_reason
        for at, leaf in enumerate(fates.leaves)
        for part in segments_of(path_pieces(leaf), at, fates)
        if part.kind == "replayed"
    )


@pytest.mark.parametrize(
    ("finish", "reason"), [(Finish.ABORT, "aborted"), (Finish.ERROR, "incomplete_call"), (Finish.LENGTH, None)]
)
def test_an_answer_that_was_broken_off_is_not_trained_but_one_that_reached_its_limit_is(journal, finish, reason):
    journal.turn("a", ROOT, [30, 31], finish=finish)
    fates = Fates(journal.forest())
    *_, last = segments_of(path_pieces(fates.leaves[0]), 0, fates)
    assert (last.kind, last.trainable, last.mask_reason) == (SegmentKind.SAMPLED, reason is None, reason)


def test_an_auxiliary_answer_is_masked_for_what_it_is_whatever_else_is_wrong_with_it(journal):
    first = journal.turn("a", ROOT, [30, 2])
    journal.start("b", [3, 50, 20], first, kind=CallKind.AUXILIARY)
    journal.commit("b", journal.choice("b", [60, 61], finish=Finish.ABORT))
    fates = Fates(journal.forest())
    masks = [
        [part.mask_reason for part in segments_of(path_pieces(leaf), at, fates) if part.kind == "sampled"]
        for at, leaf in enumerate(fates.leaves)
    ]
    assert masks == [[None], ["owned_by_other_sequence", "auxiliary"]]


def test_the_policy_version_stands_at_the_tokens_that_it_drew(journal):
    journal.turn("a", ROOT, [30, 2])
    fates = Fates(journal.forest())
    versions = [
        (part.policy_version_min, part.policy_version_max)
        for part in segments_of(path_pieces(fates.leaves[0]), 0, fates)
    ]
    assert versions == [(None, None), (None, None), (7, 7)]
