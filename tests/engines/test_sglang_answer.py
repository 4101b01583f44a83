from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.engines.sglang_answer import Answer, Ending, Fresh, natural_log, policy_spans
from turnstile.engines.sglang_shapes import Event, FinishReason, LogprobEntry, MetaInfo, WeightSpan
from turnstile.errors import CallerError, EngineError
from turnstile.generation import Finish
from turnstile.tokens import PolicySpan


def rows(ids):
    return [LogprobEntry(-float(token), token) for token in ids]


def event(ids, count, reason=None, entries=None):
    return Event(ids, MetaInfo("rid", reason, 3, count, 0, rows(ids) if entries is None else entries))


def stop(matched):
    return FinishReason("stop", matched)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data(), st.booleans())
def test_however_a_stream_is_cut_and_told_it_gives_the_same_ids_once(ids, data, cumulative):
    ends = sorted(data.draw(st.sets(st.integers(1, len(ids)))) | {len(ids)})
    answer, got, start = Answer(()), [], 0
    for end in ends:
        reason = FinishReason("length") if end == len(ids) else None
        told = event(ids[0 if cumulative else start : end], end, reason)
        got.append(answer.take(told))
        start = end
    assert [token for each in got for token in each.ids] == ids
    assert [value for each in got for value in each.logprobs] == [-float(token) for token in ids]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.integers(0, 6))
def test_an_abort_beside_an_incremental_stream_never_adds_the_id_that_it_repeats(ids, delivered):
    delivered = min(delivered, len(ids))
    answer = Answer(())
    if delivered:
        answer.take(event(ids[:delivered], delivered))
    unsent = ids[delivered:]
    # What was unsent, and then the last id again; the numbers of what was unsent, and then all.
    told = event([*unsent, ids[-1]], len(ids), FinishReason("abort"), rows(unsent) + rows(ids))
    assert answer.take(told) == Fresh(unsent, [-float(token) for token in unsent], [])


def test_an_event_with_nothing_new_adds_nothing():
    answer = Answer(())
    answer.take(event([5, 6], 2))
    assert answer.take(event([5, 6], 2)) == Fresh([], [], [])


@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        (None, None),
        (FinishReason("length"), Ending(Finish.LENGTH, "length")),
        (stop(6), Ending(Finish.STOP, "stop")),
        (stop("end"), Ending(Finish.STOP, "stop", "end")),
        (FinishReason("abort", message="Aborted"), Ending(Finish.ABORT, "abort: Aborted")),
    ],
)
def test_each_end_that_is_known(reason, ending):
    answer = Answer(("end",))
    told = event([5, 6], 2, reason)
    answer.take(told)
    assert answer.ending(told) == ending


@pytest.mark.parametrize("reason", [stop(5), stop([6]), stop("other"), stop(None), FinishReason("paused")])
def test_an_end_that_is_not_known_is_refused(reason):
    answer = Answer(("end",))
    told = event([5, 6], 2, reason)
    answer.take(told)
    with pytest.raises(EngineError, match="`finish_reason` is"):
        answer.ending(told)


def test_an_abort_with_a_status_is_an_error_whatever_else_it_says():
    # The server has put a single id in the place of the prompt by then.
    reason = FinishReason(
        "abort", message="Input length (99 tokens) exceeds the maximum allowed length", status_code=400
    )
    with pytest.raises(CallerError) as caught:
        Answer(()).take(Event([7], MetaInfo("rid", reason, 1, None)))
    assert caught.value.code == "context_length_exceeded"


def test_an_error_that_is_only_words_is_a_refusal():
    with pytest.raises(EngineError, match="status 400: oops"):
        Answer(()).take(Event(error="oops"))


@pytest.mark.parametrize("empty", [Event(), Event([1]), Event([1], MetaInfo("rid"))])
def test_an_event_without_ids_and_counts_is_refused(empty):
    with pytest.raises(EngineError, match="an event without"):
        Answer(()).take(empty)


def test_spans_tile_the_ids_and_are_cut_with_them():
    spans = (WeightSpan("a", 0, 2), WeightSpan("b", 2, 5))
    assert policy_spans(spans, 5) == (PolicySpan("a", 0, 2), PolicySpan("b", 2, 5))
    assert policy_spans(spans, 3) == (PolicySpan("a", 0, 2), PolicySpan("b", 2, 3))
    assert policy_spans(spans, 2) == (PolicySpan("a", 0, 2),)
    assert policy_spans((WeightSpan("a", 0, 0),), 0) == ()
    assert policy_spans((), 5) == ()


@pytest.mark.parametrize("spans", [[(1, 5)], [(0, 2), (3, 5)], [(0, 3), (2, 5)], [(0, 4)], [(0, 2), (2, 1)]])
def test_spans_with_a_gap_an_overlap_or_an_early_end_are_refused(spans):
    with pytest.raises(EngineError, match="`weight_versions`"):
        policy_spans(tuple(WeightSpan("a", start, end) for start, end in spans), 5)


@pytest.mark.parametrize(
    ("value", "known"),
    [
        (-0.5, -0.5),
        (0, 0.0),
        (1e-4, 0.0),
        (None, None),
        (math.nan, None),
        (-math.inf, None),
        (-3.4e38, None),
        (-9500.0, None),
    ],
)
def test_a_number_is_what_it_is_or_unknown(value, known):
    assert natural_log(value) == known
