"""Several requests as one completion."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.conversation import ReplyDelta, TokenLogprob, Usage
from turnstile.exchange.joining import Part, cut, delta_of, joined, shortened
from turnstile.generation import Delta, Finish, Generation, LogprobsMode, Note, Numbers
from turnstile.journal import PolicyRange
from turnstile.reasons import NoteCode
from turnstile.tokens import IdRun, LogprobRun


def part(ids: list[int], finish: Finish, tiles: tuple[PolicyRange, ...] = (), **given: Any) -> Part:
    known = {
        "logprobs_S": LogprobRun.of([-float(each) for each in ids]),
        "engine_finish_reason": finish.value,
        "usage": Usage(5, len(ids), 3),
        "logprobs_mode": LogprobsMode.PROCESSED,
        "logprobs_temperature": 0.5,
    } | given
    return Part(Generation(ids_S=IdRun.of(ids), finish=finish, **known), tiles)


def test_one_request_is_the_completion_as_it_came() -> None:
    only = part([1, 2], Finish.STOP, (PolicyRange(0, 2, 3, 3),))
    assert joined([only]) == only


def test_case_l3_ids_and_numbers_of_all_requests_stand_in_order_and_the_last_says_how_it_ended() -> None:
    first = part(
        [1, 2], Finish.ABORT, (PolicyRange(0, 2, 6, 6),), engine_request_id="e1", prompt_echo_T=IdRun.of([9]),
        notes=(Note(NoteCode.LOGPROB_FILLED),), sampler_echo="{}",
    )  # fmt: skip
    last = part(
        [3], Finish.STOP, (PolicyRange(0, 1, 7, 7, "7"),), engine_request_id="e2", stop_string="x", usage=Usage(7, 1),
        notes=(Note(NoteCode.CONSTRAINED),),
    )  # fmt: skip
    whole = joined([first, last])
    assert whole == Part(
        Generation(
            IdRun.of([1, 2, 3]), LogprobRun.of([-1.0, -2.0, -3.0]), Finish.STOP, "stop", Usage(5, 3, 3),
            LogprobsMode.PROCESSED, 0.5, stop_string="x", engine_request_id="e2", prompt_echo_T=IdRun.of([9]),
            sampler_echo="{}", notes=(Note(NoteCode.LOGPROB_FILLED), Note(NoteCode.CONSTRAINED)),
        ),
        (PolicyRange(0, 2, 6, 6), PolicyRange(2, 3, 7, 7, "7")),
    )  # fmt: skip


def test_a_completion_that_was_given_up_at_its_last_token_ended_by_its_length() -> None:
    assert joined([part([1], Finish.ABORT), part([2], Finish.ABORT)]).generation.finish is Finish.LENGTH
    assert joined([part([1], Finish.ABORT)]).generation.finish is Finish.LENGTH


def test_where_one_request_gave_no_numbers_its_ids_have_none_and_the_others_keep_theirs() -> None:
    silent = part([2, 3], Finish.STOP, logprobs_S=None)
    whole = joined([part([1], Finish.ABORT), silent]).generation
    assert whole.logprobs_S == LogprobRun.of([-1.0, None, None])
    assert joined([silent, silent]).generation.logprobs_S is None


def test_numbers_of_two_meanings_have_no_meaning_together() -> None:
    raw = part([2], Finish.STOP, logprobs_mode=LogprobsMode.RAW, logprobs_temperature=1.0)
    whole = joined([part([1], Finish.ABORT), raw]).generation
    assert (whole.logprobs_mode, whole.logprobs_temperature) == (LogprobsMode.UNKNOWN, None)
    nothing = part([], Finish.ABORT, logprobs_mode=LogprobsMode.NONE, logprobs_temperature=None)
    assert joined([nothing, raw]).generation.logprobs_mode is LogprobsMode.RAW


def test_equal_versions_on_both_sides_of_a_join_are_one_tile() -> None:
    whole = joined([part([1], Finish.ABORT, (PolicyRange(0, 1, 6, 6),)), part([2], Finish.STOP, (PolicyRange(0, 1, 6, 6),))])  # fmt: skip # noqa: E501
    assert whole.tiles == (PolicyRange(0, 2, 6, 6),)


def test_what_the_engines_own_parser_said_at_the_end_is_kept_where_a_request_before_it_came_to_nothing() -> None:
    said = ReplyDelta(content="hi")
    assert joined([part([], Finish.ABORT), part([1], Finish.STOP, said=said)]).generation.said == said


def test_nothing_cannot_be_joined() -> None:
    with pytest.raises(ValueError, match="no part"):
        joined([])


def test_what_was_sampled_behind_a_stop_string_is_gone_from_every_array() -> None:
    whole = part([1, 2, 3], Finish.LENGTH, (PolicyRange(0, 1, 6, 6), PolicyRange(1, 2, 7, 7), PolicyRange(2, 3, 8, 8)))
    assert cut(whole, 2, "END") == part(
        [1, 2], Finish.STOP, (PolicyRange(0, 1, 6, 6), PolicyRange(1, 2, 7, 7)), engine_finish_reason="length",
        stop_string="END",
    )  # fmt: skip


def test_a_delta_is_cut_with_all_that_is_said_of_its_ids() -> None:
    shown = tuple(TokenLogprob(bytes([each]), -1.0) for each in (1, 2, 3))
    numbers = Numbers(LogprobRun.of([-1.0, -2.0, -3.0]), LogprobsMode.RAW, 1.0)
    short = Numbers(LogprobRun.of([-1.0, -2.0]), LogprobsMode.RAW, 1.0)
    assert shortened(Delta(IdRun.of([1, 2, 3]), shown, numbers), 2) == Delta(IdRun.of([1, 2]), shown[:2], short)
    assert shortened(Delta(IdRun.of([1, 2, 3])), 1) == Delta(IdRun.of([1]))


def test_ids_that_no_delta_brought_come_with_their_numbers_if_they_have_any() -> None:
    made = part([1, 2, 3], Finish.ABORT).generation
    assert delta_of(made, 1) == Delta(IdRun.of([2, 3]), numbers=Numbers(LogprobRun.of([-2.0, -3.0]), LogprobsMode.PROCESSED, 0.5))  # fmt: skip # noqa: E501
    assert delta_of(part([1, 2], Finish.ABORT, logprobs_S=None).generation, 1) == Delta(IdRun.of([2]))


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=5))
def test_every_array_of_a_joined_completion_is_as_long_as_its_ids(runs: list[list[int]]) -> None:
    parts = [part(ids, Finish.ABORT, (PolicyRange(0, len(ids), at, at),) if ids else ()) for at, ids in enumerate(runs)]
    whole = joined(parts)
    length = sum(map(len, runs))
    assert whole.generation.logprobs_S is not None
    assert (len(whole.generation.ids_S), len(whole.generation.logprobs_S)) == (length, length)
    assert whole.generation.usage.completion_tokens == length
    assert sum(tile.end_S - tile.start_S for tile in whole.tiles) == length
