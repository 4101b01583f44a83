"""Runs of ids and log-probabilities."""

from __future__ import annotations

import itertools
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.tokens import (
    IdRun,
    IdsDigest,
    LogprobRun,
    Segment,
    SegmentKind,
    first_difference,
    join,
    tile,
    tiling_fault,
)

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=40)
VALUES = st.lists(st.one_of(st.none(), st.floats(-30, 0, width=32)), max_size=40)


@given(st.lists(IDS.map(IdRun.of), max_size=5))
def test_a_digest_that_grows_is_the_hash_of_the_whole_run(runs: list[IdRun]) -> None:
    digests = list(itertools.accumulate(runs, IdsDigest.then, initial=IdsDigest()))
    assert [each.hexdigest() for each in digests] == [join(runs[:at]).sha256() for at in range(len(runs) + 1)]


@given(IDS)
def test_a_run_gives_back_the_ids_that_it_was_made_of(ids: list[int]) -> None:
    run = IdRun.of(ids)
    assert (run.tolist(), len(run), list(run), bool(run)) == (ids, len(ids), ids, bool(ids))


@given(IDS, IDS)
def test_joining_keeps_both_runs_as_they_were(a: list[int], b: list[int]) -> None:
    joined = IdRun.of(a) + IdRun.of(b)
    assert joined == join([IdRun.of(a), IdRun.of(b)]) == IdRun.of(a + b)
    assert joined.startswith(IdRun.of(a))
    assert joined.slice(len(a)) == IdRun.of(b)


@given(IDS, IDS, st.data())
def test_the_first_difference_is_where_a_slow_comparison_finds_it(
    a: list[int], b: list[int], data: st.DataObject
) -> None:
    shared = data.draw(IDS)
    one, other = shared + a, shared + b
    slow = next((at for at, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))
    assert first_difference(IdRun.of(one), IdRun.of(other)) == (None if one == other else slow)


def test_ids_are_packed_as_little_endian_int32_and_hashed_so() -> None:
    assert IdRun.of([1, 258]).packed == b"\x01\x00\x00\x00\x02\x01\x00\x00"
    # The hash of trajectory format 1's worked example: its first prompt.
    assert (
        IdRun.of([1, 10, 11, 2, 3, 1, 20]).sha256()
        == "7918cc75625e74be827f166dc43b1683cdf925259199d9020b6d568e4926887c"
    )


def test_an_index_counts_from_either_end_and_does_not_wrap() -> None:
    run = IdRun.of([7, 8, 9])
    assert (run[0], run[-1]) == (7, 9)
    with pytest.raises(IndexError):
        run[3]
    with pytest.raises(IndexError):
        run[-4]


def test_bytes_that_are_no_whole_number_of_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="no whole number of int32 ids"):
        IdRun(b"\x00\x00\x00")


def test_a_long_run_is_shown_by_its_ends() -> None:
    assert repr(IdRun.of(range(20))) == "IdRun(20: 0, 1, 2, 3, 4, 5, ..., 15, 16, 17, 18, 19)"


@given(VALUES)
def test_logprobs_come_back_as_they_were_and_unknown_ones_have_no_value(values: list[float | None]) -> None:
    assert LogprobRun.of(values).tolist() == values


@given(VALUES, VALUES)
def test_joining_logprobs_keeps_what_is_unknown_in_its_place(a: list[float | None], b: list[float | None]) -> None:
    joined = LogprobRun.of(a) + LogprobRun.of(b)
    assert joined == LogprobRun.of(a + b)
    assert joined.slice(len(a), len(a) + len(b)) == LogprobRun.of(b)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_a_number_that_is_not_finite_is_unknown_and_leaves_no_sentinel(value: float | None) -> None:
    run = LogprobRun.of([-0.5, value, -1.0])
    assert (run.unknown, run.tolist()) == ((1,), [-0.5, None, -1.0])
    assert run.packed == struct.pack("<fff", -0.5, 0.0, -1.0)


def test_an_unknown_entry_outside_the_run_is_refused() -> None:
    with pytest.raises(ValueError, match="outside 1 values"):
        LogprobRun(b"\x00\x00\x00\x00", (1,))


def test_tiling_drops_empty_pieces_and_joins_equal_neighbours() -> None:
    pieces = [
        (3, SegmentKind.PROMPT),
        (0, SegmentKind.SCAFFOLD),
        (2, SegmentKind.PROMPT),
        (1, SegmentKind.SCAFFOLD),
        (4, SegmentKind.SAMPLED),
    ]
    assert tile(pieces) == (
        Segment(0, 5, SegmentKind.PROMPT),
        Segment(5, 6, SegmentKind.SCAFFOLD),
        Segment(6, 10, SegmentKind.SAMPLED),
    )


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(SegmentKind)), max_size=12))
def test_what_tile_makes_is_always_a_tiling(pieces: list[tuple[int, SegmentKind]]) -> None:
    assert tiling_fault(tile(pieces), sum(length for length, _ in pieces)) is None


@pytest.mark.parametrize(
    ("spans", "fault"),
    [
        ([(0, 2), (3, 5)], "gap, overlap or empty segment at token 2"),
        ([(0, 3), (2, 5)], "gap, overlap or empty segment at token 3"),
        ([(0, 0)], "gap, overlap or empty segment at token 0"),
        ([(0, 4)], "segments cover 4 of 5 tokens"),
    ],
)
def test_a_broken_tiling_is_named_with_its_place(spans: list[tuple[int, int]], fault: str) -> None:
    segments = [Segment(start, end, SegmentKind.PROMPT) for start, end in spans]
    assert tiling_fault(segments, 5) == fault


@given(IDS, st.slices(40))
def test_a_run_is_sliced_as_a_list_of_ids_is(ids: list[int], part: slice) -> None:
    assert IdRun.of(ids)[part] == IdRun.of(ids[part])


@given(
    st.lists(
        st.one_of(st.integers(0, 3), st.sampled_from([256, 1 << 16, 1 << 24, 0x01000000, 0x00010001, -1])), max_size=12
    )
)
def test_the_places_of_an_id_are_its_indices(ids: list[int]) -> None:
    run = IdRun.of(ids)
    for token_id in (0, 1, 256, 1 << 16, 1 << 24, -1):
        assert run.places(token_id) == [at for at, each in enumerate(ids) if each == token_id]
