"""Which policy version sampled which id: what the engine says, what it answers, what was announced, else unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.conversation import Usage
from turnstile.exchange.policy_log import Announcement, PolicyLog
from turnstile.exchange.policy_ranges import Told, hull, ranges_of, worth_keeping
from turnstile.generation import Finish, Generation, LogprobsMode, Note
from turnstile.journal import PolicyRange
from turnstile.reasons import NoteCode
from turnstile.tokens import IdRun, PolicySpan

SILENT = Told()


def generation(length: int, *spans: PolicySpan, version: int | None = None) -> Generation:
    return Generation(
        IdRun.of(range(length)), None, Finish.STOP, "stop", Usage(1, length), LogprobsMode.NONE, None,
        policy_version=version, policy_spans=spans,
    )  # fmt: skip


def ranges(made: Generation, before: tuple[Announcement, ...] = (), after: tuple[Announcement, ...] = (), told: Told = SILENT) -> tuple[PolicyRange, ...]:  # fmt: skip # noqa: E501
    log = PolicyLog()
    for each in before:
        log.take(log.after(each))
    epoch = log.epoch()
    for each in after:
        log.take(log.after(each))
    found = ranges_of(made, epoch, told)
    assert found.notes == ()
    return found.tiles


V6, V7 = Announcement(6, "v6"), Announcement(7, "v7")


def test_case_l3_spans_of_the_engine_split_a_call_that_straddles_an_update_at_the_very_token() -> None:
    made = generation(9, PolicySpan("6", 0, 4), PolicySpan("7", 4, 9))
    assert ranges(made) == (PolicyRange(0, 4, 6, 6, "6"), PolicyRange(4, 9, 7, 7, "7"))


def test_case_l3_other_labels_are_the_versions_that_they_were_announced_with_also_in_mid_call() -> None:
    made = generation(9, PolicySpan("v6", 0, 4), PolicySpan("v7", 4, 9))
    assert ranges(made, (V6,), (V7,)) == (PolicyRange(0, 4, 6, 6, "v6"), PolicyRange(4, 9, 7, 7, "v7"))


def test_case_l3_a_label_that_nobody_announced_is_unknown_and_kept() -> None:
    made = generation(9, PolicySpan("v6", 0, 4), PolicySpan("v9", 4, 9))
    assert ranges(made, (V6,), (V7,)) == (PolicyRange(0, 4, 6, 6, "v6"), PolicyRange(4, 9, None, None, "v9"))


def test_an_announcement_without_a_label_speaks_of_whatever_the_engine_runs() -> None:
    made = generation(3, PolicySpan("default", 0, 3))
    assert ranges(made, (Announcement(4),)) == (PolicyRange(0, 3, 4, 4, "default"),)
    assert ranges(made, (Announcement(4),), (Announcement(5),)) == (PolicyRange(0, 3, 4, 5, "default"),)


def test_an_announcement_without_a_label_says_nothing_where_labels_change_on_the_way() -> None:
    made = generation(3, PolicySpan("a", 0, 1), PolicySpan("b", 1, 3))
    assert ranges(made, (Announcement(4),), (Announcement(5),)) == (
        PolicyRange(0, 1, None, None, "a"),
        PolicyRange(1, 3, None, None, "b"),
    )


def test_an_announcement_of_another_label_says_nothing_of_this_one() -> None:
    assert ranges(generation(3, PolicySpan("v9", 0, 3)), (V7,)) == (PolicyRange(0, 3, None, None, "v9"),)


def test_a_label_that_is_given_another_version_in_mid_call_is_a_range() -> None:
    made = generation(3, PolicySpan("default", 0, 3))
    assert ranges(made, (Announcement(0, "default"),), (Announcement(12, "default"),)) == (
        PolicyRange(0, 3, 0, 12, "default"),
    )


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (Told("7", "7"), PolicyRange(0, 3, 7, 7, "7")),
        (Told("7", "9"), PolicyRange(0, 3, 7, 9, "7..9")),
        (Told("9", "7"), PolicyRange(0, 3, 7, 9, "9..7")),
        (Told("v7", "v7"), PolicyRange(0, 3, 7, 7, "v7")),
        (Told("v6", "v7"), PolicyRange(0, 3, 6, 7, "v6..v7")),
        (Told("v7", "v8"), PolicyRange(0, 3, None, None, "v7..v8")),
        (Told("v7", ""), PolicyRange(0, 3, None, None, "v7")),
        (Told("", "v7"), PolicyRange(0, 3, None, None, "v7")),
        (Told("", ""), PolicyRange(0, 3, 7, 7)),
    ],
)
def test_case_l3_without_spans_what_the_engine_answers_before_and_after_makes_a_range(
    told: Told, expected: PolicyRange
) -> None:
    assert ranges(generation(3), (V6, V7), told=told) == (expected,)


def test_case_l3_an_engine_that_says_nothing_has_the_announced_versions_and_unknown_is_unknown() -> None:
    assert ranges(generation(3), (V6,), (V7,)) == (PolicyRange(0, 3, 6, 7),)
    assert ranges(generation(3), (), (V7,)) == (PolicyRange(0, 3, None, None),)
    assert ranges(generation(3)) == (PolicyRange(0, 3, None, None),)


def test_one_version_of_the_engines_own_counts_before_what_was_announced() -> None:
    assert ranges(generation(3, version=9), (V6,), (V7,)) == (PolicyRange(0, 3, 9, 9),)


@pytest.mark.parametrize(
    ("spans", "fault"),
    [
        (((0, 4), (5, 9)), "gap, overlap or reversed span at id 4"),
        (((0, 4), (3, 9)), "gap, overlap or reversed span at id 4"),
        (((1, 9),), "gap, overlap or reversed span at id 0"),
        (((0, 5), (5, 4)), "gap, overlap or reversed span at id 5"),
        (((0, 8),), "spans cover 8 of 9 ids"),
        (((0, 10),), "spans cover 10 of 9 ids"),
    ],
)
def test_spans_that_do_not_tile_the_ids_are_no_answer_and_the_version_is_unknown(
    spans: tuple[tuple[int, int], ...], fault: str
) -> None:
    made = generation(9, *(PolicySpan(str(at), start, end) for at, (start, end) in enumerate(spans)))
    log = PolicyLog()
    log.take(log.after(Announcement(3)))
    found = ranges_of(made, log.epoch(), SILENT)
    assert found.tiles == (PolicyRange(0, 9, None, None),)
    assert found.notes == (Note(NoteCode.POLICY_SPANS_BROKEN, fault),)


def test_empty_spans_are_nothing_and_equal_neighbours_are_one() -> None:
    made = generation(4, PolicySpan("6", 0, 0), PolicySpan("7", 0, 1), PolicySpan("7", 1, 4), PolicySpan("8", 4, 4))
    assert ranges(made) == (PolicyRange(0, 4, 7, 7, "7"),)


def test_a_completion_without_ids_has_no_versions() -> None:
    assert ranges(generation(0), (V6,)) == ()
    assert hull(()) == (None, None)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_tiles_always_cover_every_id_once_and_the_hull_covers_every_tile(
    lengths: list[int], data: st.DataObject
) -> None:
    labels = st.sampled_from(["5", "6", "v6", "v7", "other"])
    spans: list[PolicySpan] = []
    at = 0
    for length in lengths:
        spans.append(PolicySpan(data.draw(labels), at, at + length))
        at += length
    tiles = ranges(generation(at, *spans), (V6,), (V7,))
    assert [tile.start_S for tile in tiles] == [0, *(tile.end_S for tile in tiles[:-1])]
    assert tiles[-1].end_S == at
    low, high = hull(tiles)
    known = all(tile.lowest is not None for tile in tiles)
    assert (low is not None) is known
    assert not known or all(low <= tile.lowest and tile.highest <= high for tile in tiles)


def test_tiles_are_kept_only_where_the_hull_does_not_say_it_all() -> None:
    exact, silent = (PolicyRange(0, 3, 7, 7, "7"),), (PolicyRange(0, 3, None, None),)
    unnamed = (PolicyRange(0, 3, None, None, "v9"),)
    split = (PolicyRange(0, 1, 6, 6, "6"), PolicyRange(1, 3, 7, 7, "7"))
    assert [worth_keeping(tiles) for tiles in (exact, silent, unnamed, split)] == [(), (), unnamed, split]
