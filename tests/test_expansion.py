"""Collapsed and expanded ids: each is made from the other without loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.expansion import ExpandedIds, ImageRange, expand, expanded_by_runs
from turnstile.tokens import IdRun

PAD = 7


def test_each_placeholder_is_replaced_by_the_run_of_its_image() -> None:
    runs = [IdRun.of([PAD, PAD, PAD]), IdRun.of([PAD, 9, PAD])]
    assert expand(IdRun.of([1, PAD, 2, PAD]), PAD, runs) == ExpandedIds(
        IdRun.of([1, PAD, PAD, PAD, 2, PAD, 9, PAD]), (ImageRange(1, 3, 3), ImageRange(5, 3, 2))
    )


def test_as_many_runs_as_placeholders_are_demanded() -> None:
    with pytest.raises(ValueError, match="1 placeholders for 2 images"):
        expand(IdRun.of([1, PAD]), PAD, [IdRun.of([PAD]), IdRun.of([PAD])])


def test_a_sampled_placeholder_is_no_image_where_there_are_none() -> None:
    assert expand(IdRun.of([1, PAD]), PAD, []) == ExpandedIds(IdRun.of([1, PAD]), ())


@pytest.mark.parametrize("ranges", [[(0, 0)], [(2, 3)], [(0, 2), (1, 1)], [(2, 1), (0, 1)]])
def test_ranges_that_overlap_leave_the_ids_or_are_empty_are_refused(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError, match="is misplaced"):
        ExpandedIds(IdRun.of([PAD] * 4), tuple(ImageRange(start, length, length) for start, length in ranges))


def test_without_ranges_each_unbroken_run_of_placeholders_is_an_image() -> None:
    echo = IdRun.of([PAD, 1, PAD, PAD, 2, PAD])
    assert expanded_by_runs(echo, PAD).ranges == (ImageRange(0, 1, 1), ImageRange(2, 2, 2), ImageRange(5, 1, 1))


ids = st.lists(st.integers(8, 20), max_size=5)


@given(st.lists(st.tuples(ids, st.integers(1, 6)), max_size=5), ids)
def test_collapsing_undoes_expanding(images: list[tuple[list[int], int]], last: list[int]) -> None:
    collapsed = IdRun.of([token for before, _ in images for token in (*before, PAD)] + last)
    expanded = expand(collapsed, PAD, [IdRun.of([PAD] * length) for _, length in images])
    assert expanded.collapsed(PAD) == collapsed
    assert [each.num_tokens for each in expanded.ranges] == [length for _, length in images]
