from __future__ import annotations

import pytest

from turnstile.conversation import CallKind
from turnstile.generation import Finish, Forked
from turnstile.journal import PolicyRange
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


def _versions(segments):
    return [
        (part.start, part.end, part.policy_version_min, part.policy_version_max, part.mask_reason)
        for part in segments
        if part.kind == "sampled"
    ]


def test_case_l3_a_weight_update_in_mid_call_splits_its_segment_at_the_token_where_the_version_changes(journal):
    ranges = (PolicyRange(0, 2, 6, 6, "6"), PolicyRange(2, 3, 7, 8), PolicyRange(3, 5, None, None, "v9"))
    journal.turn("a", ROOT, [30, 31, 32, 33, 2], logprobs=[-1.0, None, -1.0, -1.0, -1.0], policy_ranges=ranges)
    fates = Fates(journal.forest())
    at = len(ROOT)
    assert _versions(segments_of(path_pieces(fates.leaves[0]), 0, fates)) == [
        (at, at + 1, 6, 6, None),
        (at + 1, at + 2, 6, 6, "logprob_missing"),
        (at + 2, at + 3, 7, 8, None),
        (at + 3, at + 5, None, None, None),
    ]


def test_versions_behind_the_place_where_a_completion_was_cut_are_gone_with_its_ids(journal):
    ranges = (PolicyRange(0, 2, 6, 6), PolicyRange(2, 4, 7, 7), PolicyRange(4, 5, 8, 8))
    first = journal.turn("a", ROOT, [30, 31, 32, 33, 2], policy_ranges=ranges)
    journal.turn("b", [50], [60, 2], first, cut=2)
    fates = Fates(journal.forest())
    at = len(ROOT)
    found = [_versions(segments_of(path_pieces(leaf), index, fates)) for index, leaf in enumerate(fates.leaves)]
    assert [(start - at, end - at, low, high) for start, end, low, high, _ in found[-1]] == [
        (0, 2, 6, 6),
        (2, 3, 7, 7),
        (4, 6, 7, 7),
    ]
