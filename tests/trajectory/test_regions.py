from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnstile.errors import CallerError, TurnstileError
from turnstile.tokens import IdRun, LogprobRun
from turnstile.trajectory.assemble import assemble
from turnstile.trajectory.regions import Regions, Room, into_regions
from turnstile.trajectory.shapes import Sequence, SequenceSegment

PROMPT = list(range(100, 112))
RESPONSE = [30, 31, 32, 33, 2]
LOGPROBS = [-0.5, -1.5, -2.5, -3.5, -4.5]


@pytest.fixture
def row(journal) -> Sequence:
    """The row of case H3: 12 prompt ids, 5 response ids."""
    journal.turn("a", PROMPT, RESPONSE, logprobs=LOGPROBS)
    (sequence,) = assemble(journal.forest()).sequences
    return sequence


def laid_out(regions: Regions) -> tuple[list[int], list[int], list[int], list[float | None]]:
    return (
        regions.prompt_P.tolist(), regions.response_R.tolist(), regions.mask_R.tolist(), regions.logprobs_R.tolist(),
    )  # fmt: skip


def test_case_h3_what_overflows_the_prompt_region_stands_before_the_response_with_mask_0(row):
    assert laid_out(into_regions(row, Room(prompt=4, total=32))) == (
        PROMPT[:4],
        [*PROMPT[4:], *RESPONSE],
        [0] * 8 + [1] * 5,
        [None] * 8 + LOGPROBS,
    )


def test_case_h3_a_row_that_cannot_fit_is_refused_with_both_numbers(row):
    with pytest.raises(TurnstileError) as refused:
        into_regions(row, Room(prompt=4, total=10))
    assert refused.value.code == "row_too_long"
    assert refused.value.problem == "Sequence ro/0 does not fit into the trainer's row: need=17 have=10"


@pytest.mark.parametrize(("prompt", "total", "need"), [(12, 17, 17), (4, 17, 17), (0, 17, 17), (14, 19, 19)])
def test_a_row_fits_to_its_last_id_and_a_short_prompt_takes_its_whole_region(row, prompt, total, need):
    regions = into_regions(row, Room(prompt=prompt, total=total))
    assert regions.prompt_P + regions.response_R == row.token_ids
    with pytest.raises(CallerError, match=f"need={need} have={total - 1}"):
        into_regions(row, Room(prompt=prompt, total=total - 1))


def test_what_is_said_between_two_answers_is_response_with_mask_0_and_no_log_probability(journal):
    first = journal.turn("a", PROMPT, [30, 2])
    journal.turn("b", [3, 50, 20], [60, 2], first, logprobs=[-1.0, None])
    (sequence,) = assemble(journal.forest()).sequences
    assert laid_out(into_regions(sequence, Room(prompt=12, total=19))) == (
        PROMPT,
        [30, 2, 3, 50, 20, 60, 2],
        [1, 1, 0, 0, 0, 1, 0],
        [-0.5, -1.5, None, None, None, -1.0, None],
    )


def test_a_sequence_without_a_sampled_token_is_all_prompt(journal):
    journal.turn("a", PROMPT, [])
    (sequence,) = assemble(journal.forest()).sequences
    assert laid_out(into_regions(sequence, Room(prompt=10, total=12))) == (PROMPT[:10], PROMPT[10:], [0, 0], [None] * 2)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"logprobs": LogprobRun()}, "E301 0 log-probabilities for 5 sampled tokens"),
        ({"logprobs": LogprobRun.of([*LOGPROBS, -1.0])}, "E301 6 log-probabilities for 5 sampled tokens"),
        ({"token_ids": IdRun.of([*PROMPT, *RESPONSE[:3]])}, "E202 segments cover 17 of 15 tokens"),
        ({"segments": (SequenceSegment(start=1, end=17, kind="prompt"),)}, "E201 gap, overlap"),
        ({"prompt_length": 4}, "E206 prompt_length 4, first sampled token at 12"),
    ],
    ids=["no numbers", "one too many", "ids that got shorter", "a gap", "another prompt"],
)
def test_case_d5_arrays_of_unequal_length_are_refused_and_never_zipped(row, change, problem):
    with pytest.raises(CallerError, match=problem) as refused:
        into_regions(msgspec.structs.replace(row, **change), Room(prompt=4, total=32))
    assert refused.value.code == "row_unaligned"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    turns=st.lists(st.tuples(st.integers(3, 9), st.integers(0, 6)), min_size=1, max_size=4),
    prompt=st.integers(0, 12),
    total=st.integers(0, 60),
)
def test_no_id_is_ever_lost_and_all_arrays_are_of_one_length(new_journal, turns, prompt, total):
    journal, parent = new_journal(), None
    for at, (said, sampled) in enumerate(turns):
        ids = [200 + at] * sampled
        parent = journal.turn(
            f"t{at}", [50 + at] * said, ids, parent, logprobs=[-at - 0.25 * n for n in range(sampled)]
        )
    (sequence,) = assemble(journal.forest()).sequences
    try:
        regions = into_regions(sequence, Room(prompt, total))
    except CallerError as refused:
        assert refused.code == "row_too_long"
        assert len(sequence.token_ids) > total or prompt > sequence.prompt_length
        return
    assert regions.prompt_P + regions.response_R == sequence.token_ids
    assert len(regions.prompt_P) <= prompt
    assert len(regions.response_R) <= total - prompt
    assert len(regions.response_R) == len(regions.mask_R) == len(regions.logprobs_R)
    assert sum(regions.mask_R) == sum(sequence.loss_mask_T())
    unknown = [at for at, value in enumerate(regions.logprobs_R.tolist()) if value is None]
    assert not any(regions.mask_R[at] for at in unknown)
    assert [value for value in regions.logprobs_R.tolist() if value is not None] == sequence.logprobs.tolist()
