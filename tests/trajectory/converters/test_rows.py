"""A sequence as a row with dense arrays."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnstile.errors import CallerError
from turnstile.tokens import LogprobRun
from turnstile.trajectory.converters.options import Options
from turnstile.trajectory.converters.rows import Place, Row, cut, fault_of
from turnstile.trajectory.float32 import Float32Run
from turnstile.trajectory.shapes import Rollout

PLACE = Place(number=0, rollout_number=0, group_number=0, in_group=0)


@pytest.fixture
def row(rollouts: list[Rollout]) -> Row:
    """The second sequence of the second rollout: a replayed answer, and one with a masked token."""
    rollout = rollouts[1]
    return Row(rollout=rollout, sequence=rollout.sequences[1], row=1, rows=2, place=PLACE, advantage=2.0)


def changed(row: Row, **fields: Any) -> Row:
    return msgspec.structs.replace(row, sequence=msgspec.structs.replace(row.sequence, **fields))


def test_a_row_knows_what_is_trained_by_whom_and_with_which_weights(row: Row) -> None:
    assert row.trained_runs == [(15, 16), (17, 19)]
    assert [call.call_id for call in row.trained_calls] == ["d1"]
    assert row.policy_range == (7, 8)
    assert row.advantages_T == [0.0] * 15 + [2.0, 0.0, 2.0, 2.0]


def test_an_unknown_policy_version_makes_the_range_unknown(row: Row) -> None:
    segments = tuple(
        msgspec.structs.replace(each, policy_version_min=None, policy_version_max=None)
        for each in row.sequence.segments
    )
    assert changed(row, segments=segments).policy_range is None


def test_recorded_advantages_stand_at_their_tokens_and_nowhere_else(row: Row) -> None:
    recorded = msgspec.structs.replace(changed(row, advantages=Float32Run.of([1.0, 2.0, 3.0, 4.0])), advantage=None)
    assert recorded.advantages_T == [0.0] * 15 + [1.0, 0.0, 3.0, 4.0]


def test_recorded_advantages_that_are_not_there_are_refused(row: Row) -> None:
    with pytest.raises(CallerError) as refused:
        msgspec.structs.replace(row, advantage=None).advantages_T  # noqa: B018 - the access is what is tested
    assert refused.value.code == "advantage_missing"


def test_a_sequences_own_reward_is_before_its_rollouts(row: Row) -> None:
    assert (row.reward, changed(row, reward=0.5).reward) == (0.0, 0.5)


def test_a_row_is_cut_where_its_first_answer_begins(row: Row) -> None:
    pieces = cut(row, Options())
    assert (len(pieces.prompt_P), pieces.response_R) == (15, [60, 61, 62, 2])
    assert (pieces.mask_R, pieces.logprobs_R) == ([1, 0, 1, 1], [-0.5, 0.0, -1.0, -0.25])


def test_case_h3_the_rest_of_a_long_prompt_begins_the_response_and_nothing_is_cut_off(row: Row) -> None:
    pieces = cut(row, Options(prompt_length=4, max_length=32))
    assert pieces.prompt_P + pieces.response_R == row.ids_T
    assert (len(pieces.prompt_P), pieces.mask_R, pieces.logprobs_R) == (
        4,
        [0] * 11 + [1, 0, 1, 1],
        [0.0] * 11 + [-0.5, 0.0, -1.0, -0.25],
    )
    with pytest.raises(CallerError, match="need=19 have=10") as refused:
        cut(row, Options(prompt_length=4, max_length=10))
    assert refused.value.code == "row_too_long"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"prompt_length": 3}, "E206"),
        ({"logprobs": LogprobRun.of([-1.0])}, "E301"),
        ({"logprobs": LogprobRun.of([None, None, -1.0, -1.0])}, "E303"),
        ({"segments": ()}, "E202"),
    ],
)
def test_case_d5_a_sequence_whose_arrays_are_not_about_the_same_tokens_is_told(
    row: Row, fields: dict[str, Any], code: str
) -> None:
    assert fault_of(row.rollout, row.sequence) == ""
    assert fault_of(row.rollout, changed(row, **fields).sequence).startswith(code)


def test_a_segment_of_a_call_that_is_not_there_is_a_fault(row: Row) -> None:
    assert fault_of(msgspec.structs.replace(row.rollout, calls=()), row.sequence).startswith("E203")
